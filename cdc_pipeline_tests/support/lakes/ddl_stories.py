"""Stories about DDL whose effect on rows is not sent as row changes. Each has two slices, with a cut after each."""

from __future__ import annotations

from dataclasses import dataclass, field

from cdc_pipeline_tests.support.lakes.stories import ID_V, KEYED, Table, change, create, delete, put, update, wide
from cdc_pipeline_tests.support.messages import ddl, row

Messages = list[tuple[str, int]]


@dataclass(frozen=True)
class DdlStory:
    """Two slices of messages and the expected result."""

    first: Messages
    """(payload, partition) of the first slice."""
    second: Messages
    tables: dict[str, Table | None]
    """`database.table` → the expected mirror; None: there is no mirror."""
    statuses: tuple[str, ...] = field(default=())
    """Expected statuses of the statements in `ddl_history`; empty: not compared."""


def of(kind: str, table: str, step: int, data: dict[str, str | None], types: dict[str, str]) -> tuple[str, int]:
    old = {name: None for name in data if name != "id"} if kind == "UPDATE" else None
    key = [*types] if types is _DAYS else ["id"]
    return row(kind, table, step, data, old=old, types=types, key=key), 1


def elsewhere(sql: str, step: int, database: str, table: str = "") -> tuple[str, int]:
    return ddl(sql, step, database=database, table=table, kind="QUERY"), 0


def far(table: str, step: int, key: str, value: str, database: str) -> tuple[str, int]:
    payload = row("INSERT", table, step, {"id": key, "v": value}, types={"id": "int", "v": "varchar"}, key=["id"])
    return payload.replace('"database": "db"', f'"database": "{database}"'), 2


def _precise(step: int, time: str, number: str, kind: str = "INSERT") -> tuple[str, int]:
    """A row of a table without a key."""
    return row(kind, "prec", step, {"t": time, "d": number}, types={"t": "time", "d": "decimal"}), 1


_GEN = {"id": "int", "a": "int", "j": "json"}
_LATE = {"id": "bigint", "v": "varchar"}
_DAYS = {"id": "int", "d": "datetime"}
_BY_RANGE = (
    " PARTITION BY RANGE (`id`) (PARTITION `p0` VALUES LESS THAN (10),PARTITION `p1` VALUES LESS THA"
    "N (20),PARTITION `p2` VALUES LESS THAN (MAXVALUE))"
)

STORIES: dict[str, DdlStory] = {
    "ranges_that_are_emptied_and_dropped": DdlStory(
        [create("pr", 1, KEYED + _BY_RANGE), put("pr", 2, "-5", "a"), put("pr", 2, "15", "b"), put("pr", 2, "25", "c")]
        + [change("ALTER TABLE pr TRUNCATE PARTITION p0", 3), put("pr", 4, "9", "d")],
        [change("ALTER TABLE pr DROP PARTITION P1", 20), put("pr", 21, "15", "e")]
        + [
            change(
                (
                    "ALTER TABLE pr REORGANIZE PARTITION p2 INTO (PARTITION q VALUES LESS THAN (30), PARTITION r VAL"
                    "UES LESS THAN MAXVALUE)"
                ),
                22,
            )
        ]
        + [change("ALTER TABLE pr TRUNCATE PARTITION q", 23), put("pr", 24, "40", "f")],
        {"db.pr": Table(ID_V, [("9", "d"), ("40", "f")])},
    ),
    "a_partition_by_hash_and_all_of_them": DdlStory(
        [
            create("ph", 1, KEYED + " PARTITION BY HASH(id) PARTITIONS 3"),
            *(put("ph", 2, str(key), "x") for key in (-4, -1, 0, 3, 4)),
        ]
        + [create("pa", 1, KEYED + " PARTITION BY KEY(id) PARTITIONS 3"), put("pa", 2, "1", "a")],
        [change("ALTER TABLE ph TRUNCATE PARTITION p1", 20), change("ALTER TABLE pa TRUNCATE PARTITION ALL", 20)]
        + [put("pa", 21, "2", "b")],
        {"db.ph": Table(ID_V, [("0", "x"), ("3", "x")]), "db.pa": Table(ID_V, [("2", "b")])},
    ),
    "partitions_by_the_year_of_a_date": DdlStory(
        [
            create(
                "py",
                1,
                (
                    "CREATE TABLE `{}` (id INT, d DATETIME, PRIMARY KEY (id, d)) PARTITION BY RANGE (YEAR(d)) (PARTI"
                    "TION p0 VALUES LESS THAN (2020), PARTITION p1 VALUES LESS THAN (2021))"
                ),
            )
        ]
        + [
            of("INSERT", "py", 2, {"id": "1", "d": "2019-12-31 23:59:59"}, _DAYS),
            of("INSERT", "py", 2, {"id": "2", "d": "2020-01-01 00:00:00"}, _DAYS),
        ],
        [change("ALTER TABLE py TRUNCATE PARTITION p1", 20)],
        {"db.py": Table(("id", "d"), [("1", "2019-12-31 23:59:59")])},
    ),
    "an_exchange_of_a_partition_with_a_table": DdlStory(
        [
            create("pe", 1, KEYED + _BY_RANGE),
            create("px", 1),
            put("pe", 2, "1", "a"),
            put("pe", 2, "11", "b"),
            put("px", 2, "5", "x"),
        ]
        + [elsewhere("ALTER TABLE `db`.`pe` EXCHANGE PARTITION ``p0`` WITH TABLE `db`.`px`", 3, "db", "pe")]
        + [update("pe", 4, ("5", "x"), ("5", "y")), delete("px", 4, "1", "a"), put("px", 4, "2", "z")],
        [
            elsewhere(
                "ALTER TABLE `db`.`pe` EXCHANGE PARTITION `p0` WITH TABLE `db`.`px` WITHOUT VALIDATION", 20, "db", "pe"
            )
        ],
        {"db.pe": Table(ID_V, [("2", "z"), ("11", "b")]), "db.px": Table(ID_V, [("5", "y")])},
    ),
    "virtual_columns_that_are_not_sent": DdlStory(
        [
            create(
                "gen",
                1,
                (
                    "CREATE TABLE `{}` (`id` INT PRIMARY KEY,`a` INT,`v` INT GENERATED ALWAYS AS(`a`+1) VIRTUAL,`j` "
                    "JSON,`jv` VARCHAR(20) GENERATED ALWAYS AS(JSON_UNQUOTE(JSON_EXTRACT(`j`, _UTF8MB4'$.k'))) VIRTU"
                    "AL,`w` INT AS (`v` * 2))"
                ),
            )
        ]
        + [
            of("INSERT", "gen", 2, {"id": "1", "a": "1", "j": '{"k": "é"}'}, _GEN),
            of("INSERT", "gen", 2, {"id": "2", "a": None, "j": None}, _GEN),
        ],
        [of("UPDATE", "gen", 20, {"id": "1", "a": "41", "j": '{"k": 7}'}, _GEN)],
        {
            "db.gen": Table(
                ("id", "a", "v", "j", "jv", "w"),
                [("1", "41", "42", '{"k": 7}', "7", "84"), ("2", None, None, None, None, None)],
            )
        },
    ),
    "a_row_that_goes_leaves_no_doubt_of_what_is_computed": DdlStory(
        [create("year", 1, "CREATE TABLE `{}` (id INT PRIMARY KEY, d DATE NOT NULL, y INT AS (YEAR(d)) VIRTUAL)")]
        + [of("INSERT", "year", 2, {"id": key, "d": "2020-02-29"}, {"id": "int", "d": "date"}) for key in ("1", "2")],
        [of("DELETE", "year", 20, {"id": "1"}, {"id": "int"})],
        {"db.year": Table(("id", "d", "y"), [("2", "2020-02-29", "2020")])},
    ),
    "generated_columns_and_expressions_for_rows_that_are_there": DdlStory(
        [
            create("added", 1, "CREATE TABLE `{}` (id INT PRIMARY KEY, n INT)"),
            wide("INSERT", "added", 2, {"id": "3", "n": "7"}),
        ]
        + [
            change(
                (
                    "ALTER TABLE added ADD COLUMN g INT AS (n + m) STORED, ADD COLUMN m INT NOT NULL DEFAULT 5, ADD "
                    "COLUMN h VARCHAR(20) AS (concat('g', g))"
                ),
                3,
            )
        ],
        [
            change(
                (
                    "ALTER TABLE added ADD COLUMN e INT DEFAULT (id * 2), ADD COLUMN f INT DEFAULT (e + k), ADD COLU"
                    "MN k INT DEFAULT 3"
                ),
                20,
            )
        ]
        + [change("ALTER TABLE added MODIFY g INT AS (n * 10) STORED", 21)],
        {"db.added": Table(("id", "n", "g", "m", "h", "e", "f", "k"), [("3", "7", "70", "5", "g70", "6", "9", "3")])},
    ),
    "one_of_several_dropped_tables_by_the_number_of_its_job": DdlStory(
        [create("job", 1), put("job", 2, "1", "a"), change("DROP TABLE job", 3)]
        + [create("job", 4), put("job", 5, "2", "b"), change("DROP TABLE job", 6)],
        [(ddl("RECOVER TABLE BY JOB 53", 20, table="job", kind="RECOVER"), 0), put("job", 21, "3", "c")],
        {"db.job": Table(ID_V, [("3", "c")], gaps=True)},
    ),
    "nulls_of_a_column_that_becomes_not_null": DdlStory(
        [create("tight", 1), put("tight", 2, "1", None), put("tight", 2, "2", "b")],
        [
            change("ALTER TABLE tight MODIFY v VARCHAR(20) NOT NULL", 20),
            change("ALTER TABLE tight RENAME COLUMN v TO w", 21),
        ],
        {"db.tight": Table(("id", "w"), [("1", None), ("2", "b")], gaps=True)},
    ),
    "defaults_of_the_time_when_a_statement_began": DdlStory(
        [create("began", 1), put("began", 2, "1", "a"), create("began_empty", 1)],
        [
            change("ALTER TABLE began ADD COLUMN day DATE DEFAULT (CURRENT_DATE)", 20),
            change("ALTER TABLE began_empty ADD COLUMN at DATETIME DEFAULT CURRENT_TIMESTAMP", 20),
        ],
        {
            "db.began": Table(("id", "v", "day"), [("1", "a", "2026-11-21")], gaps=True),
            "db.began_empty": Table(("id", "v", "at"), []),
        },
    ),
    "an_outdated_definition_that_comes_late": DdlStory(
        [of("INSERT", "outdated", 2, {"id": "1", "v": "a"}, _LATE)],
        [
            change("CREATE TABLE IF NOT EXISTS outdated (id INT PRIMARY KEY, v VARCHAR(20))", 20),
            of("INSERT", "outdated", 21, {"id": "3000000000", "v": "c"}, _LATE),
        ],
        {"db.outdated": Table(ID_V, [("1", "a"), ("3000000000", "c")], gaps=True)},
    ),
    "a_table_like_one_whose_create_was_never_seen": DdlStory(
        [put("model", 2, "1", "a")],
        [
            change("CREATE TABLE copied LIKE model", 20),
            of("INSERT", "copied", 21, {"id": "3000000000", "v": "c"}, _LATE),
        ],
        {
            "db.model": Table(ID_V, [("1", "a")], gaps=True),
            "db.copied": Table(ID_V, [("3000000000", "c")], gaps=True),
        },
    ),
    "statements_that_did_not_arrive": DdlStory(
        [
            create("unkeyed", 1),
            put("unkeyed", 2, "1", "a"),
            (row("INSERT", "unkeyed", 3, {"id": "2", "v": "b"}, types=_LATE, key=[]), 1),
        ],
        [],
        {"db.unkeyed": Table(ID_V, [("1", "a"), ("2", "b")], gaps=True)},
    ),
    "columns_of_the_same_names_with_other_values": DdlStory(
        [
            create("again", 1, "CREATE TABLE `{}` (id INT PRIMARY KEY, n INT, m INT)"),
            wide("INSERT", "again", 2, {"id": "1", "n": "7", "m": "8"}),
            create("swapped", 1, "CREATE TABLE `{}` (id INT PRIMARY KEY, n INT, m INT)"),
            wide("INSERT", "swapped", 2, {"id": "1", "n": "7", "m": "8"}),
            change("ALTER TABLE again DROP COLUMN m, ADD COLUMN m INT DEFAULT 5", 3),
        ],
        [
            change("ALTER TABLE again DROP COLUMN n, DROP COLUMN m, ADD COLUMN n INT AFTER id, ADD COLUMN m INT", 20),
            change("ALTER TABLE swapped CHANGE m n INT AFTER id, CHANGE n m INT AFTER n", 20),
            wide("INSERT", "again", 21, {"id": "2", "n": "1", "m": "2"}),
            wide("INSERT", "swapped", 21, {"id": "2", "n": "1", "m": "2"}),
        ],
        {
            "db.again": Table(("id", "n", "m"), [("1", None, None), ("2", "1", "2")]),
            "db.swapped": Table(("id", "n", "m"), [("1", "8", "7"), ("2", "1", "2")]),
        },
    ),
    "a_generated_column_follows_the_column_it_reads": DdlStory(
        [
            create(
                "follows", 1, "CREATE TABLE `{}` (id INT PRIMARY KEY, d DECIMAL(6,3), g DECIMAL(8,3) AS (d * 2) STORED)"
            ),
            of(
                "INSERT",
                "follows",
                2,
                {"id": "1", "d": "1.255", "g": "2.510"},
                {"id": "int", "d": "decimal", "g": "decimal"},
            ),
        ],
        [change("ALTER TABLE follows MODIFY d DECIMAL(6,2)", 20)],
        {"db.follows": Table(("id", "d", "g"), [("1", "1.26", "2.520")])},
    ),
    "a_dropped_table_comes_back": DdlStory(
        [create("back", 1), put("back", 2, "1", "a"), change("DROP TABLE back", 3)]
        + [
            create("twice", 1),
            put("twice", 2, "1", "old"),
            change("DROP TABLE twice", 3),
            create("twice", 4),
            put("twice", 5, "2", "new"),
            change("FLASHBACK TABLE twice TO twice_old", 6),
            put("twice_old", 7, "3", "on"),
        ],
        [elsewhere("RECOVER TABLE BY JOB 53", 20, "db", "back"), put("back", 21, "2", "b")],
        {
            "db.back": Table(ID_V, [("1", "a"), ("2", "b")]),
            "db.twice": Table(ID_V, [("2", "new")]),
            "db.twice_old": Table(ID_V, [("1", "old"), ("3", "on")]),
        },
    ),
    "rows_from_before_a_truncate_come_back": DdlStory(
        [create("cut", 1), put("cut", 2, "1", "a")],
        [
            change("TRUNCATE TABLE cut", 20),
            put("cut", 21, "2", "b"),
            change("FLASHBACK TABLE cut TO uncut", 22),
            put("uncut", 23, "3", "c"),
        ],
        {"db.cut": Table(ID_V, [("2", "b")]), "db.uncut": Table(ID_V, [("1", "a"), ("3", "c")])},
    ),
    "a_table_that_an_earlier_cut_has_truncated_comes_back_empty": DdlStory(
        [create("cut0", 1), put("cut0", 2, "1", "a"), change("TRUNCATE TABLE cut0", 3)],
        [change("FLASHBACK TABLE cut0 TO uncut0", 20), put("uncut0", 21, "3", "c")],
        {"db.cut0": Table(ID_V, []), "db.uncut0": Table(ID_V, [("3", "c")], gaps=True)},
    ),
    "a_database_comes_back": DdlStory(
        [
            elsewhere("CREATE TABLE `far`.`t` (`id` INT PRIMARY KEY,`v` VARCHAR(20))", 1, "far", "t"),
            far("t", 2, "1", "a", "far"),
        ]
        + [elsewhere("DROP DATABASE `far`", 3, "far")],
        [elsewhere("FLASHBACK DATABASE `far` TO `near`", 20, "far"), far("t", 21, "2", "b", "near")],
        {"far.t": None, "near.t": Table(ID_V, [("1", "a"), ("2", "b")])},
    ),
    "a_table_of_which_nothing_is_kept_comes_back": DdlStory(
        [],
        [change("RECOVER TABLE ghost", 20), put("ghost", 21, "1", "a")],
        {"db.ghost": Table(ID_V, [("1", "a")], gaps=True)},
    ),
    "a_table_made_by_a_query": DdlStory(
        [create("base", 1), change("CREATE TABLE made (PRIMARY KEY (id)) AS SELECT b.id, v AS w FROM base b", 2)]
        + [of("INSERT", "made", 3, {"id": "1", "w": "x"}, {"id": "int", "w": "varchar"})],
        [change("CREATE TABLE guess AS SELECT count(*) n FROM base", 20), wide("INSERT", "guess", 21, {"n": "5"})],
        {
            "db.made": Table(("id", "w"), [("1", "x")], gaps=True),
            "db.guess": Table(("n",), [("5",)], gaps=True),
        },
    ),
    "a_statement_without_a_database": DdlStory(
        [create("lost", 1), put("lost", 2, "1", "a")],
        [(ddl("ALTER TABLE `lost` /*!50000 ADD COLUMN */ n INT DEFAULT 4", 20, database="", kind="QUERY"), 0)],
        {"db.lost": Table(("id", "v", "n"), [("1", "a", "4")])},
    ),
    "a_table_is_replaced_without_its_database": DdlStory(
        [create("old_t", 1, "CREATE TABLE `{}` (`id` INT PRIMARY KEY,`w` INT)")]
        + [of("INSERT", "old_t", 2, {"id": "1", "w": "2"}, {"id": "int", "w": "int"})],
        [elsewhere("CREATE OR REPLACE TABLE old_t (k INT PRIMARY KEY)", 20, "")]
        + [elsewhere("ALTER TABLE IF EXISTS old_t ADD COLUMN IF NOT EXISTS q INT, DROP COLUMN IF EXISTS w", 21, "")]
        + [(row("INSERT", "old_t", 22, {"k": "7", "q": "8"}, types={"k": "int", "q": "int"}, key=["k"]), 1)],
        {"db.old_t": Table(("k", "q"), [("7", "8")])},
        ("applied", "applied", "applied"),
    ),
    "other_precisions_of_values_that_are_kept_as_text": DdlStory(
        [create("prec", 1, "CREATE TABLE `{}` (`t` TIME(6),`d` DECIMAL(45,3))")]
        + [_precise(2, "-00:00:00.400000", "-0.005"), _precise(2, "-838:59:58.500000", "9.995")]
        + [_precise(2, "11:59:59.999999", "1"), _precise(2, "11:59:59.999999", "1.000")],
        [change("ALTER TABLE prec MODIFY t TIME, MODIFY d DECIMAL(60,2)", 20)]
        + [_precise(21, "12:00:00", "1.00", "DELETE"), _precise(21, "00:00:00", "-0.01", "DELETE")]
        + [change("ALTER TABLE prec MODIFY t TIME(2), MODIFY d DECIMAL(60,4)", 22)]
        + [_precise(23, "12:00:00.00", "1.0000", "DELETE"), _precise(23, "23:00:00.50", "7.0000")],
        {"db.prec": Table(("t", "d"), [("-838:59:59.00", "10.0000"), ("23:00:00.50", "7.0000")])},
    ),
    "labels_that_differ_in_their_case": DdlStory(
        [create("lab", 1, "CREATE TABLE `{}` (`id` INT PRIMARY KEY,`e` ENUM('a','b'),`s` SET('x','y'))")]
        + [of("INSERT", "lab", 2, {"id": "1", "e": "2", "s": "3"}, {"id": "int", "e": "enum", "s": "set"})],
        [change("ALTER TABLE lab ADD c8 SET('A','a','é') NOT NULL DEFAULT 'a', ADD c9 ENUM('é','A') NOT NULL", 20)]
        + [change("ALTER TABLE lab MODIFY e ENUM('B','b','a'), MODIFY s SET('y','z','x')", 21)]
        + [
            of(
                "INSERT",
                "lab",
                22,
                {"id": "2", "e": "1", "s": "5", "c8": "7", "c9": "2"},
                {"id": "int", "e": "enum", "s": "set", "c8": "set", "c9": "enum"},
            )
        ],
        {"db.lab": Table(("id", "e", "s", "c8", "c9"), [("1", "b", "y,x", "a", "é"), ("2", "B", "y,x", "A,a,é", "A")])},
    ),
    "rows_repair_what_a_statement_that_cannot_be_read_has_changed": DdlStory(
        [
            create("rep", 1, "CREATE TABLE `{}` (`id` INT PRIMARY KEY,`n` INT)"),
            wide("INSERT", "rep", 2, {"id": "1", "n": "5"}),
        ],
        [change("ALTER TABLE rep MODIFY n BIGINT WITH SOME NEW WORDS", 20)]
        + [
            of(
                "INSERT",
                "rep",
                21,
                {"id": "2", "n": "9223372036854775807", "m": "x"},
                {"id": "int", "n": "bigint", "m": "varchar"},
            )
        ],
        {"db.rep": Table(("id", "n", "m"), [("1", "5", None), ("2", "9223372036854775807", "x")], gaps=True)},
        ("applied", "not applied yet"),
    ),
    "a_truncate_heals": DdlStory(
        [put("heal", 2, "1", "a"), change("ALTER TABLE heal MODIFY v VARCHAR(9) WITH SOME NEW WORDS", 3)],
        [change("TRUNCATE TABLE heal", 20), put("heal", 21, "2", "b")],
        {"db.heal": Table(ID_V, [("2", "b")])},
    ),
    "a_definition_that_comes_late": DdlStory(
        [of("INSERT", "late", 2, {"id": key, "v": value}, _LATE) for key, value in (("1", "a"), ("2", None))],
        [
            change("CREATE TABLE IF NOT EXISTS late (id BIGINT PRIMARY KEY, v VARCHAR(20))", 20),
            of("INSERT", "late", 21, {"id": "3000000000", "v": "c"}, _LATE),
        ],
        {"db.late": Table(ID_V, [("1", "a"), ("2", None), ("3000000000", "c")], gaps=True)},
    ),
    "values_that_a_new_type_rounds": DdlStory(
        [create("conv", 1, "CREATE TABLE `{}` (id INT PRIMARY KEY, t VARCHAR(9), d DECIMAL(6,3), at DATETIME(3))")]
        + [
            of(
                "INSERT",
                "conv",
                2,
                {"id": "1", "t": "12", "d": "-1.255", "at": "2020-01-01 00:00:00.500"},
                {"id": "int", "t": "varchar", "d": "decimal", "at": "datetime"},
            )
        ],
        [change("ALTER TABLE conv MODIFY d DECIMAL(6,2), MODIFY at DATETIME", 20)],
        {"db.conv": Table(("id", "t", "d", "at"), [("1", "12", "-1.26", "2020-01-01 00:00:01")])},
    ),
    "text_becomes_the_first_datetime_of_a_table": DdlStory(
        [create("moments", 1, "CREATE TABLE `{}` (id INT PRIMARY KEY, at VARCHAR(30))")]
        + [of("INSERT", "moments", 2, {"id": "1", "at": "2020-01-01 12:30:00"}, {"id": "int", "at": "varchar"})],
        [change("ALTER TABLE moments MODIFY at DATETIME", 20)],
        {"db.moments": Table(("id", "at"), [("1", "2020-01-01 12:30:00")])},
    ),
    "zero_dates_that_become_text": DdlStory(
        [create("zeros", 1, "CREATE TABLE `{}` (id INT PRIMARY KEY, at DATETIME NOT NULL, d DATE)")]
        + [
            of("INSERT", "zeros", 2, {"id": key, "at": at, "d": d}, {"id": "int", "at": "datetime", "d": "date"})
            for key, at, d in (("0", "0000-00-00 00:00:00", None), ("1", "2020-01-01 12:30:00", "0000-00-00"))
        ],
        [change("ALTER TABLE zeros MODIFY at VARCHAR(30), MODIFY d DATETIME", 20)],
        {"db.zeros": Table(("id", "at", "d"), [("0", None, None), ("1", "2020-01-01 12:30:00", None)], gaps=True)},
    ),
    "names_go_round_over_databases": DdlStory(
        [create("c1", 1), create("c2", 1), put("c1", 2, "1", "one"), put("c2", 2, "2", "two")],
        [change("RENAME TABLE c1 TO other.c1, c2 TO c1, other.c1 TO c2", 20), put("c1", 21, "3", "three")]
        + [change("ALTER TABLE c2 RENAME AS other.c2", 22), far("c2", 23, "4", "four", "other")],
        {
            "db.c1": Table(ID_V, [("2", "two"), ("3", "three")]),
            "other.c2": Table(ID_V, [("1", "one"), ("4", "four")]),
            "db.c2": None,
            "other.c1": None,
        },
    ),
    "a_statement_that_is_sent_twice_parts_its_rows_once": DdlStory(
        [create("sent", 1), put("sent", 2, "1", "a"), *[change("TRUNCATE TABLE sent", 3)] * 2, put("sent", 4, "2", "b")]
        + [change("RENAME TABLE sent TO sent2", 5)],
        [],
        {"db.sent": None, "db.sent2": Table(ID_V, [("2", "b")])},
    ),
    "a_table_made_though_it_is_there": DdlStory(
        [create("anew", 1), put("anew", 2, "1", "a")],
        [create("anew", 20, "CREATE TABLE `{}` (`id` INT PRIMARY KEY)"), wide("INSERT", "anew", 21, {"id": "2"})],
        {"db.anew": Table(("id",), [("2",)])},
    ),
}
