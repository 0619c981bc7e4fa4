"""Stories of one or a few tables, in one topic with three partitions, and the expected mirrors.

One run ingests all stories, so that Spark starts once. The name of a story is the behavior that it shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from cdc_pipeline_tests.support.messages import ddl, row

Rows: TypeAlias = list[tuple[str | None, ...]]


@dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    rows: Rows
    gaps: bool = False


@dataclass(frozen=True)
class Story:
    """A change history and its expected mirrors."""

    messages: list[tuple[str, int]]
    """(payload, partition)."""
    tables: dict[str, Table | None]
    """Table → the expected mirror; None: there is no mirror."""


TYPES = {"id": "int", "v": "varchar", "n": "int"}
KEYED = "CREATE TABLE `{}` (`id` INT PRIMARY KEY,`v` VARCHAR(20))"
KEYLESS = "CREATE TABLE `{}` (`id` INT,`v` VARCHAR(20))"


def create(table: str, step: int, statement: str = KEYED) -> tuple[str, int]:
    return ddl(statement.format(table), step, table=table, kind="CREATE"), 0


def change(sql: str, step: int) -> tuple[str, int]:
    return ddl(sql, step), 0


def put(table: str, step: int, key: str, value: str | None, partition: int = 1) -> tuple[str, int]:
    return row("INSERT", table, step, {"id": key, "v": value}, types=TYPES, key=["id"]), partition


def update(
    table: str, step: int, old: tuple[str, str | None], new: tuple[str, str | None], partition: int = 1
) -> tuple[str, int]:
    payload = row(
        "UPDATE",
        table,
        step,
        {"id": new[0], "v": new[1]},
        old={"id": old[0], "v": old[1]},
        types=TYPES,
        key=["id"],
    )
    return payload, partition


def delete(table: str, step: int, key: str, value: str | None, partition: int = 1) -> tuple[str, int]:
    return row("DELETE", table, step, {"id": key, "v": value}, types=TYPES, key=["id"]), partition


def wide(kind: str, table: str, step: int, data: dict[str, str | None]) -> tuple[str, int]:
    types = {**TYPES, **dict.fromkeys(data.keys() - TYPES.keys(), "int")}
    return row(kind, table, step, data, types=types, key=[name for name in ("id", "k") if name in data]), 1


def softly(
    kind: str, step: int, value: str, deleted: str | None, *, old: dict[str, str | None] | None = None
) -> tuple[str, int]:
    """A change of row 1 of a table with TiDB's soft delete, whose hidden column is in its rows."""
    types = {**TYPES, "_tidb_softdelete_time": "timestamp(6)"}
    data = {"id": "1", "v": value, "_tidb_softdelete_time": deleted}
    return row(kind, "softly", step, data, old=old, types=types, key=["id"]), 1


_NULL_TEXT = {"id": "int", "v": "varchar(20)", "w": "varchar(20)"}
ID_V = ("id", "v")

STORIES: dict[str, Story] = {
    "the_newest_commit_wins_whatever_the_partition_or_offset": Story(
        [
            create("newest", 1),
            update("newest", 9, ("1", "b"), ("1", "c"), 2),
            put("newest", 5, "1", "a", 1),
            update("newest", 7, ("1", "a"), ("1", "b"), 1),
        ],
        {"newest": Table(ID_V, [("1", "c")])},
    ),
    "a_key_change_split_over_two_partitions_at_one_tso": Story(
        [create("split", 1), put("split", 2, "1", "a"), put("split", 3, "2", "x", 2), delete("split", 3, "1", "a", 1)],
        {"split": Table(ID_V, [("2", "x")])},
    ),
    "at_one_tso_an_insert_comes_after_the_delete_of_its_key": Story(
        [create("swap", 1), put("swap", 2, "1", "a"), put("swap", 2, "2", "b"), put("swap", 5, "1", "b", 2)]
        + [put("swap", 5, "2", "a", 2), delete("swap", 5, "1", "a"), delete("swap", 5, "2", "b")],
        {"swap": Table(ID_V, [("1", "b"), ("2", "a")])},
    ),
    "a_key_change_in_one_update_takes_the_old_key_away": Story(
        [create("moved", 1), put("moved", 2, "1", "a"), update("moved", 3, ("1", "a"), ("7", "a"), 2)],
        {"moved": Table(ID_V, [("7", "a")])},
    ),
    "two_rows_swap_their_keys_in_updates_of_one_transaction": Story(
        [create("rawswap", 1), put("rawswap", 2, "1", "a"), put("rawswap", 2, "2", "b")]
        + [update("rawswap", 3, ("1", "a"), ("2", "a")), update("rawswap", 3, ("2", "b"), ("1", "b"))],
        {"rawswap": Table(ID_V, [("1", "b"), ("2", "a")])},
    ),
    "an_update_whose_old_has_changed_columns_only": Story(
        [
            create("partial", 1),
            put("partial", 2, "1", "a"),
            (row("UPDATE", "partial", 3, {"id": "1", "v": None}, old={"v": "a"}, types=TYPES, key=["id"]), 1),
            put("partial", 4, "2", "z"),
            (row("UPDATE", "partial", 5, {"id": "3", "v": "z"}, old={"id": "2"}, types=TYPES, key=["id"]), 1),
        ],
        {"partial": Table(ID_V, [("1", None), ("3", "z")])},
    ),
    "a_delete_may_name_its_key_only": Story(
        [create("keyonly", 1), put("keyonly", 2, "1", "a"), put("keyonly", 2, "2", "b")]
        + [(row("DELETE", "keyonly", 3, {"id": "1"}, types=TYPES, key=["id"]), 1)],
        {"keyonly": Table(ID_V, [("2", "b")])},
    ),
    "a_delete_that_names_a_key_which_the_mirror_does_not_have": Story(
        [create("halfkey", 1, KEYLESS), put("halfkey", 2, "1", "a"), put("halfkey", 2, "2", "b")]
        + [(row("DELETE", "halfkey", 3, {"id": "1"}, types=TYPES, key=["id"]), 1)],
        {"halfkey": Table(ID_V, [("1", "a"), ("2", "b")], gaps=True)},
    ),
    "rows_above_the_resolved_tso_wait": Story(
        [create("waits", 1), put("waits", 2, "1", "a"), update("waits", 5000, ("1", "a"), ("1", "later"))],
        {"waits": Table(ID_V, [("1", "a")])},
    ),
    "equal_rows_without_a_key_are_counted": Story(
        [create("bag", 1, KEYLESS), *[put("bag", 2, "1", "a")] * 3, put("bag", 2, "2", None), put("bag", 2, "2", None)]
        + [delete("bag", 3, "1", "a"), update("bag", 4, ("2", None), ("2", "b"))],
        {"bag": Table(ID_V, [("1", "a"), ("1", "a"), ("2", None), ("2", "b")])},
    ),
    "a_unique_not_null_key_identifies_rows": Story(
        [
            create("uk", 1, "CREATE TABLE `{}` (`id` INT NOT NULL,`v` VARCHAR(20), UNIQUE KEY u (`id`))"),
            put("uk", 2, "1", "a"),
            update("uk", 3, ("1", "a"), ("1", "b")),
            update("uk", 4, ("1", "b"), ("1", "c")),
        ],
        {"uk": Table(ID_V, [("1", "c")])},
    ),
    "a_table_that_goes_there_and_back_beside_another_one": Story(
        [
            create("back", 1),
            put("back", 2, "1", "a"),
            change("RENAME TABLE back TO there", 3),
            put("there", 4, "2", "b"),
        ]
        + [change("RENAME TABLE there TO back", 5), create("there", 6, KEYLESS), put("there", 7, "9", "n")]
        + [put("back", 7, "3", "c")],
        {"back": Table(ID_V, [("1", "a"), ("2", "b"), ("3", "c")]), "there": Table(ID_V, [("9", "n")])},
    ),
    "rows_at_the_ddls_own_tso_lie_before_it": Story(
        [create("edge", 1), put("edge", 2, "1", "a"), change("TRUNCATE TABLE edge", 3), put("edge", 3, "2", "b")]
        + [put("edge", 4, "3", "c")],
        {"edge": Table(ID_V, [("3", "c")])},
    ),
    "added_columns_have_their_defaults_in_older_rows": Story(
        [
            create("added", 1),
            put("added", 2, "1", "a"),
            change("ALTER TABLE added ADD COLUMN n INT NOT NULL DEFAULT 42 FIRST, ADD m INT, ADD z INT NOT NULL", 3),
            wide("INSERT", "added", 4, {"n": "1", "id": "2", "v": "b", "m": "5", "z": "6"}),
        ],
        {"added": Table(("n", "id", "v", "m", "z"), [("42", "1", "a", None, "0"), ("1", "2", "b", "5", "6")])},
    ),
    "a_renamed_column_keeps_its_values_and_a_dropped_one_does_not_come_back": Story(
        [
            create("cols", 1, "CREATE TABLE `{}` (`id` INT PRIMARY KEY,`v` VARCHAR(20),`n` INT)"),
            wide("INSERT", "cols", 2, {"id": "1", "v": "a", "n": "7"}),
            change("ALTER TABLE cols RENAME COLUMN v TO w, DROP COLUMN n", 3),
            change("ALTER TABLE cols ADD COLUMN n INT", 4),
            wide("INSERT", "cols", 5, {"id": "2", "w": "b", "n": "8"}),
        ],
        {"cols": Table(("id", "w", "n"), [("1", "a", None), ("2", "b", "8")])},
    ),
    "two_columns_swap_their_names": Story(
        [
            create("names", 1, "CREATE TABLE `{}` (`id` INT PRIMARY KEY,`a` INT,`b` INT)"),
            wide("INSERT", "names", 2, {"id": "1", "a": "1", "b": "2"}),
            change("ALTER TABLE names RENAME COLUMN a TO b, RENAME COLUMN b TO a", 3),
        ],
        {"names": Table(("id", "b", "a"), [("1", "1", "2")])},
    ),
    "a_type_that_widens_and_one_that_does_not": Story(
        [
            create("types", 1, "CREATE TABLE `{}` (`id` INT PRIMARY KEY,`a` SMALLINT,`d` DECIMAL(6,2),`n` INT)"),
            wide("INSERT", "types", 2, {"id": "1", "a": "5", "d": "1.25", "n": "9"}),
            change("ALTER TABLE types MODIFY a BIGINT, MODIFY d DECIMAL(10,4)", 3),
            change("ALTER TABLE types CHANGE n t VARCHAR(9)", 4),
            wide("INSERT", "types", 5, {"id": "2", "a": "9223372036854775807", "d": "0.1234", "t": "x"}),
        ],
        {
            "types": Table(
                ("id", "a", "d", "t"), [("1", "5", "1.2500", "9"), ("2", "9223372036854775807", "0.1234", "x")]
            )
        },
    ),
    "a_renamed_table_and_a_new_one_under_its_old_name": Story(
        [create("old1", 1), put("old1", 2, "1", "a"), change("RENAME TABLE old1 TO new1", 3), create("old1", 4)]
        + [put("old1", 5, "9", "fresh"), update("new1", 5, ("1", "a"), ("1", "b"), 2)],
        {"old1": Table(ID_V, [("9", "fresh")]), "new1": Table(ID_V, [("1", "b")])},
    ),
    "two_tables_swap_their_names_over_a_third": Story(
        [create("s1", 1), create("s2", 1), put("s1", 2, "1", "one"), put("s2", 2, "2", "two")]
        + [change("RENAME TABLE s1 TO s_tmp, s2 TO s1, s_tmp TO s2", 3), put("s1", 4, "3", "three")],
        {"s1": Table(ID_V, [("2", "two"), ("3", "three")]), "s2": Table(ID_V, [("1", "one")]), "s_tmp": None},
    ),
    "a_dropped_table_made_again_with_another_shape": Story(
        [create("again", 1), put("again", 2, "1", "a"), change("DROP TABLE again", 3)]
        + [
            create("again", 4, "CREATE TABLE `{}` (`k` VARCHAR(5) PRIMARY KEY)"),
            wide("INSERT", "again", 5, {"k": "x"}),
        ],
        {"again": Table(("k",), [("x",)])},
    ),
    "a_table_like_another": Story(
        [create("model", 1), change("CREATE TABLE likeness LIKE model", 2), put("likeness", 3, "1", "a")],
        {"likeness": Table(ID_V, [("1", "a")]), "model": Table(ID_V, [])},
    ),
    "a_table_whose_create_was_never_seen": Story(
        [put("unseen", 2, "1", "a"), put("unseen", 2, "2", "b"), update("unseen", 3, ("1", "a"), ("1", "c"))],
        {"unseen": Table(ID_V, [("1", "c"), ("2", "b")], gaps=True)},
    ),
    "a_statement_that_is_not_applied_yet_marks_its_table": Story(
        [
            create("part", 1, KEYED + " PARTITION BY KEY(id) PARTITIONS 2"),
            put("part", 2, "1", "a"),
            change("ALTER TABLE part TRUNCATE PARTITION p1", 3),
            put("part", 4, "2", "b"),
        ],
        {"part": Table(ID_V, [("1", "a"), ("2", "b")], gaps=True)},
    ),
    "a_value_that_its_type_cannot_hold_stops_its_own_row_only": Story(
        [create("bad", 1), put("bad", 2, "x1", "a"), put("bad", 2, "2", "b")],
        {"bad": Table(ID_V, [("2", "b")], gaps=True)},
    ),
    "the_text_null_that_ticdc_sent_as_null_where_no_null_can_be": Story(
        [
            create("nullbag", 1, "CREATE TABLE `{}` (`id` INT,`v` VARCHAR(20) NOT NULL,`w` VARCHAR(20))"),
            *(
                (row(kind, "nullbag", step, {"id": "1", "v": None, "w": None}, types=_NULL_TEXT, key=[]), 1)
                for kind, step in (("INSERT", 2), ("INSERT", 3), ("DELETE", 4))
            ),
            create("nulltext", 1, "CREATE TABLE `{}` (`id` INT PRIMARY KEY,`v` VARCHAR(20) NOT NULL,`w` VARCHAR(20))"),
            *(
                (row("INSERT", "nulltext", 2, {"id": key, "v": text, "w": None}, types=_NULL_TEXT, key=["id"]), 1)
                for key, text in (("1", None), ("2", "x"))
            ),
            (
                row(
                    "UPDATE",
                    "nulltext",
                    3,
                    {"id": "2", "v": None, "w": None},
                    old={"v": "x"},
                    types=_NULL_TEXT,
                    key=["id"],
                ),
                1,
            ),
        ],
        {
            "nulltext": Table(("id", "v", "w"), [("1", "null", None), ("2", "null", None)]),
            "nullbag": Table(("id", "v", "w"), [("1", "null", None)]),
        },
    ),
    # TiCDC sends a soft delete as DELETE, and the way back as UPDATE (pingcap/ticdc, active_active.go)
    "a_row_of_a_soft_delete_table_comes_back_by_an_update": Story(
        [
            create("undeleted", 1),
            put("undeleted", 2, "1", "a"),
            put("undeleted", 2, "2", "b"),
            delete("undeleted", 3, "1", "a"),
            update("undeleted", 4, ("1", "a"), ("1", "back"), 2),
            create("softly", 1, KEYED + " /*T![softdelete] SOFTDELETE=RETENTION 7 DAY */"),
            softly("INSERT", 2, "a", None),
            softly("DELETE", 3, "a", None),
            softly("UPDATE", 4, "back", None, old={"_tidb_softdelete_time": "2026-11-21 08:11:33.000000"}),
        ],
        {
            "undeleted": Table(ID_V, [("1", "back"), ("2", "b")]),
            "softly": Table(ID_V, [("1", "back")], gaps=True),
        },
    ),
    # TiCDC's table routing: the rule changes while the changefeed runs
    "a_table_whose_route_changes_goes_on_under_another_name": Story(
        [
            create("routed", 1),
            put("routed", 2, "1", "a"),
            put("routed", 2, "2", "b"),
            update("archived", 3, ("1", "a"), ("1", "c")),
            change("ALTER TABLE archived ADD COLUMN n INT", 4),
            wide("INSERT", "archived", 5, {"id": "3", "v": "d", "n": "7"}),
        ],
        {
            "routed": Table(ID_V, [("1", "a"), ("2", "b")]),
            "archived": Table(("id", "v", "n"), [("1", "c", None), ("3", "d", "7")], gaps=True),
        },
    ),
    # TiCDC's ignore-update-only-columns: n
    "an_update_that_was_not_sent_shows_in_the_next_one": Story(
        [
            create("ignoring", 1, "CREATE TABLE `{}` (`id` INT PRIMARY KEY,`v` VARCHAR(20),`n` INT)"),
            wide("INSERT", "ignoring", 2, {"id": "1", "v": "a", "n": "1"}),
            wide("INSERT", "ignoring", 2, {"id": "2", "v": "a", "n": "1"}),
            (
                row("UPDATE", "ignoring", 4, {"id": "1", "v": "b", "n": "5"}, old={"v": "a"}, types=TYPES, key=["id"]),
                1,
            ),
        ],
        {"ignoring": Table(("id", "v", "n"), [("1", "b", "5"), ("2", "a", "1")])},
    ),
    "names_that_need_quotes": Story(
        [
            create("we`ird n/me", 1, "CREATE TABLE `we``ird n/me` (`a b` INT PRIMARY KEY,`c``d` INT,`e.f` INT)"),
            (row("INSERT", "we`ird n/me", 2, {"a b": "1", "c`d": "2", "e.f": "3"}, key=["a b"]), 1),
            change("ALTER TABLE `we``ird n/me` RENAME COLUMN `c``d` TO `x;y`", 3),
            (row("UPDATE", "we`ird n/me", 4, {"a b": "1", "x;y": "5", "e.f": "3"}, old={"x;y": "2"}, key=["a b"]), 1),
        ],
        {"we`ird n/me": Table(("a b", "x;y", "e.f"), [("1", "5", "3")])},
    ),
}
