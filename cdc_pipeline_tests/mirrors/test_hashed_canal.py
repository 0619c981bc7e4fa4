"""Canal over several partitions, rows by their key, DDL in partition 0: each case is one table's stream.

A case is ingested in two slices, a cut after each. What belongs before the end of the first cut is late in the second: the
table has a gap, and a rebuild applies it in order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry, published_entries
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.messages import EPOCH_MS, Topic, canal

Sent = tuple[str, int]
Row = dict[str, str | None]


@dataclass(frozen=True)
class Case:
    """`first` and `second` are (payload, partition); `rows` the table's rows at the end, None where it is not there.

    `doubt`: the table gets a gap with the words `gap`. It is created before both, unless `create` is ""."""

    first: list[Sent]
    second: list[Sent]
    rows: list[dict[str, Any]] | None
    doubt: bool = False
    gap: str = "do not show which"
    create: str = "CREATE TABLE x (id INT PRIMARY KEY, v VARCHAR(20))"
    others: dict[str, list[dict[str, Any]] | None] = field(default_factory=dict)
    late: bool = False


def _sent(payload: str, ms: int, batch: int, es: int | None) -> str:
    """`ms` is when Canal built the message, `es` the second in which its statement began, both after the story's start."""
    message = json.loads(payload) | {"ts": EPOCH_MS + ms, "id": batch}
    return json.dumps(message | {"es": (EPOCH_MS + (ms if es is None else es * 1000)) // 1000 * 1000})


def put(ms: int, row: Row, partition: int = 1, *, types: Row | None = None, **place: Any) -> Sent:
    return _row("INSERT", ms, row, None, partition, types, **place)


def change(ms: int, row: Row, old: Row, partition: int = 1, *, types: Row | None = None, **place: Any) -> Sent:
    return _row("UPDATE", ms, row, old, partition, types, **place)


def take(ms: int, row: Row, partition: int = 1, *, types: Row | None = None, **place: Any) -> Sent:
    return _row("DELETE", ms, row, None, partition, types, **place)


def _row(
    kind: str,
    ms: int,
    row: Row,
    old: Row | None,
    partition: int,
    types: Row | None,
    *,
    batch: int = 5,
    es: int | None = None,
    table: str = "x",
    key: tuple[str, ...] = ("id",),
) -> Sent:
    words = {name: "int" if name in ("id", "k", "n") else "varchar(20)" for name in row} | (types or {})
    payload = canal(kind, table, 0, [row], old=None if old is None else [old], types=words, key=list(key) or None)  # type: ignore[arg-type]
    return _sent(payload, ms, batch, es), partition


def run(ms: int, sql: str, *, kind: str = "ALTER", batch: int = 5, es: int | None = None, table: str = "x") -> Sent:
    return _sent(canal(kind, table, 0, None, sql=sql, is_ddl=True), ms, batch, es), 0


def _rows(*rows: tuple[Any, ...], columns: str = "id v") -> list[dict[str, Any]]:
    return [dict(zip(columns.split(), row, strict=True)) for row in rows]


_PRECISE: Row = {"v": "a", "t": "-00:59:59.500", "d": "9.950", "at": "2025-12-31 23:59:59.95"}
_PRECISE_TYPES: Row = {"t": "time(3)", "d": "decimal(40,3)", "at": "datetime(2)"}

CASES = {
    # ---- in one cut
    "a_row_that_overtakes_its_column": Case(
        [put(1000, {"id": "1", "v": "a"}), put(2000, {"id": "2", "v": "b", "n": "9"}, batch=6)]
        + [run(2000, "ALTER TABLE x ADD COLUMN n INT NOT NULL DEFAULT 7", batch=6)],
        [put(3000, {"id": "3", "v": "c", "n": "8"}, 2, batch=7)],
        _rows((1, "a", 7), (2, "b", 9), (3, "c", 8), columns="id v n"),
    ),
    "a_row_behind_the_drop_of_its_column": Case(
        [run(2000, "ALTER TABLE x DROP COLUMN v", batch=6), put(2000, {"id": "1", "v": "a"}, batch=6)],
        [put(3000, {"id": "2"}, 2, batch=7)],
        _rows((1,), (2,), columns="id"),
    ),
    "the_clock_orders_before_the_second_does": Case(
        # an ALTER that waited for the table: its second is before those of rows that were logged before it
        [run(5000, "TRUNCATE TABLE x", kind="TRUNCATE", batch=9, es=1), put(3000, {"id": "1", "v": "a"}, batch=7)],
        [put(6000, {"id": "2", "v": "b"}, batch=10)],
        _rows((2, "b")),
    ),
    "rows_that_were_written_while_a_long_alter_ran": Case(
        [put(9000, {"id": "1", "v": "a"}, 0, batch=7), run(9001, "ALTER TABLE x ADD n INT DEFAULT 4", batch=7, es=1)],
        [put(9002, {"id": "2", "v": "b", "n": None}, 0, batch=7, es=9)],
        _rows((1, "a", 4), (2, "b", None), columns="id v n"),
    ),
    "the_batch_orders_what_was_built_in_one_ms": Case(
        [put(2000, {"id": "1", "v": "a"}, batch=6), run(2000, "TRUNCATE TABLE x", kind="TRUNCATE", batch=7)],
        [put(2000, {"id": "2", "v": "b"}, batch=8)],
        _rows((2, "b")),
    ),
    "a_type_tells_the_side_of_a_modify": Case(
        [put(2000, {"id": "1", "v": "12"}, 1, types={"v": "varchar(20)"}), run(2000, "ALTER TABLE x MODIFY v INT")]
        + [put(2000, {"id": "2", "v": "13"}, 2, types={"v": "INT"})],
        [],
        _rows((1, 12), (2, 13)),
    ),
    "nothing_tells_the_side_of_a_truncate": Case(
        [put(2000, {"id": "1", "v": "a"}), run(2000, "TRUNCATE TABLE x", kind="TRUNCATE")],
        [put(3000, {"id": "2", "v": "b"}, batch=6)],
        _rows((2, "b")),
        doubt=True,
    ),
    "a_key_comes_back_after_an_older_delete_of_it_arrived": Case(
        [put(1000, {"id": "1", "v": "a"}, 2), put(1000, {"id": "3", "v": "c"}, 1), put(1000, {"id": "5", "v": "e"}, 2)]
        + [change(3000, {"id": "1", "v": "c"}, {"id": "3"}, 2, batch=7)],
        [change(2000, {"id": "2", "v": "a"}, {"id": "1"}, 0, batch=6)]
        + [change(4000, {"id": "4", "v": "c"}, {"id": "1"}, 1, batch=8)]
        + [change(4000, {"id": "1", "v": "e"}, {"id": "5"}, 2, batch=8)],
        _rows((1, "e"), (2, "a"), (4, "c")),
        late=True,
    ),
    # the partition of the new key is behind, and an earlier cut has applied the write of that moment
    **{
        f"a_key_that_leaves_from_partition_{behind}_after_a_write_of_that_moment": Case(
            [put(1000, {"id": "2", "v": "a"}, 2)] + [change(5000, {"id": "2", "v": "b"}, {"v": "a"}, 2, batch=6)],
            [change(5000, {"id": "3", "v": "b"}, {"id": "2"}, behind, batch=6)],
            _rows((3, "b")),
            late=True,
        )
        for behind in (0, 1)
    },
    "a_row_without_a_column_moves_to_a_key_that_leaves": Case(
        [put(1000, {"id": "1", "v": "a", "b": "one"}, 2), put(1000, {"id": "7", "v": "c", "b": "seven"})],
        [change(2000, {"id": "5", "v": "a"}, {"id": "1"}, 2, batch=6)]
        + [change(2000, {"id": "1", "v": "c"}, {"id": "7"}, 1, batch=6)],
        _rows((1, "c", None), (5, "a", None), columns="id v b"),
        doubt=True,
        gap="2 row(s) were updated without some columns",
        create="CREATE TABLE x (id INT PRIMARY KEY, v VARCHAR(20), b TEXT)",
    ),
    "a_key_that_goes_and_comes_within_one_moment": Case(
        [put(1000, {"id": "2", "v": "a"}, 2), put(2000, {"id": "2", "v": "again"}, 2, batch=6)]
        + [change(2000, {"id": "3", "v": "a"}, {"id": "2"}, 1, batch=6)],
        [],
        _rows((2, "again"), (3, "a")),
    ),
    "a_key_that_comes_and_goes_within_one_moment": Case(
        [put(2000, {"id": "2", "v": "a"}, 2), change(2000, {"id": "3", "v": "a"}, {"id": "2"}, 1)],
        [],
        _rows((3, "a")),
    ),
    "a_key_that_goes_and_comes_in_the_cut_after": Case(
        [put(1000, {"id": "2", "v": "a"}, 2)],
        [
            put(2000, {"id": "2", "v": "again"}, 2, batch=6),
            change(2000, {"id": "3", "v": "a"}, {"id": "2"}, 1, batch=6),
        ],
        _rows((2, "again"), (3, "a")),
    ),
    "a_key_that_comes_and_goes_in_the_cut_after": Case(
        [put(1000, {"id": "9", "v": "z"}, 2)],
        [put(2000, {"id": "2", "v": "a"}, 2, batch=6), change(2000, {"id": "3", "v": "a"}, {"id": "2"}, 1, batch=6)],
        _rows((3, "a"), (9, "z")),
    ),
    "a_key_that_goes_and_comes_by_a_statement_that_began_earlier": Case(
        [put(1000, {"id": "2", "v": "a"}, 2), put(1001, {"id": "1", "v": "b"}, 1)]
        + [change(5000, {"id": "1", "v": "c"}, {"v": "b"}, 1, batch=6, es=5)]
        + [change(5000, {"id": "3", "v": "a"}, {"id": "2"}, 0, batch=6, es=5)]
        + [change(5000, {"id": "2", "v": "c"}, {"id": "1"}, 2, batch=6, es=2)],
        [],
        _rows((2, "c"), (3, "a")),
    ),
    "a_key_is_given_twice_by_statements_that_began_earlier_and_later": Case(
        [put(1000, {"id": "2", "v": "a"}, 2), change(5000, {"id": "2", "v": "b"}, {"v": "a"}, 2, batch=6, es=5)]
        + [change(5000, {"id": "3", "v": "b"}, {"id": "2"}, 0, batch=6, es=4)]
        + [put(5000, {"id": "2", "v": "c"}, 2, batch=6, es=3)],
        [],
        _rows((2, "c"), (3, "b")),
    ),
    "a_key_that_comes_goes_and_comes_again_in_the_moment_of_two_cuts": Case(
        [put(1000, {"id": "9", "v": "z"}, 2), put(2000, {"id": "2", "v": "a"}, 2, batch=6)],
        [put(2000, {"id": "2", "v": "b"}, 2, batch=6), change(2000, {"id": "3", "v": "a"}, {"id": "2"}, 1, batch=6)],
        _rows((2, "b"), (3, "a"), (9, "z")),
        late=True,
    ),
    "a_row_of_the_moment_of_its_create_comes_in_the_cut_after": Case(
        [run(2000, "CREATE TABLE x (id INT PRIMARY KEY, v VARCHAR(20))", kind="CREATE", es=1)]
        + [put(2000, {"id": "1", "v": "a"}, es=2)],
        [put(2000, {"id": "2", "v": "b"}, 2, es=2)],
        _rows((1, "a"), (2, "b")),
        create="",
        late=True,
    ),
    "nothing_tells_the_side_of_a_truncate_that_began_later": Case(
        [put(5000, {"id": "1", "v": "a"}, es=4), run(5000, "TRUNCATE TABLE x", kind="TRUNCATE", es=2)],
        [put(6000, {"id": "2", "v": "b"}, batch=6)],
        _rows((2, "b")),
        doubt=True,
    ),
    "a_key_that_goes_and_in_the_cut_after_comes_in_the_same_moment": Case(
        [put(1000, {"id": "2", "v": "a"}, 2), change(2000, {"id": "3", "v": "a"}, {"id": "2"}, 1, batch=6)],
        [put(2000, {"id": "2", "v": "again"}, 2, batch=6)],
        _rows((2, "again"), (3, "a")),
        late=True,
    ),
    "what_waited_for_a_lock_is_newer": Case(
        [put(1000, {"id": "1", "v": "a"}), change(5000, {"id": "1", "v": "b"}, {"v": "a"}, batch=6, es=5)],
        [change(6000, {"id": "1", "v": "c"}, {"v": "b"}, batch=7, es=3)],
        _rows((1, "c")),
    ),
    # ---- the statement comes in the cut after
    "a_column_is_added_after_its_rows": Case(
        [put(1000, {"id": "1", "v": "a"}), put(1000, {"id": "2", "v": "b"}, 2)]
        + [
            put(3000, {"id": "3", "v": "c", "n": "5"}, batch=7),
            change(3001, {"id": "2", "v": "b", "n": None}, {"v": "b"}, 2),
        ],
        [run(2000, "ALTER TABLE x ADD COLUMN n INT NOT NULL DEFAULT 7", batch=6)],
        _rows((1, "a", 7), (2, "b", None), (3, "c", 5), columns="id v n"),
        late=True,
    ),
    "a_column_goes_after_rows_without_it": Case(
        [put(1000, {"id": "1", "v": "a"}), put(3000, {"id": "3"}, batch=7)],
        [run(2000, "ALTER TABLE x DROP COLUMN v", batch=6)],
        _rows((1,), (3,), columns="id"),
        late=True,
    ),
    "a_column_is_renamed_after_rows_with_its_new_name": Case(
        [put(1000, {"id": "1", "v": "a"}), put(3000, {"id": "3", "w": "c"}, batch=7)],
        [run(2000, "ALTER TABLE x CHANGE v w VARCHAR(30)", batch=6)],
        _rows((1, "a"), (3, "c"), columns="id w"),
        late=True,
    ),
    "a_table_is_renamed_after_rows_with_its_new_name": Case(
        [put(1000, {"id": "1", "v": "a"}), put(3000, {"id": "3", "v": "c"}, batch=7, table="x_new")],
        [run(2000, "RENAME TABLE x TO x_new", kind="RENAME", batch=6, table="x_new")],
        None,
        others={"x_new": _rows((1, "a"), (3, "c"))},
        late=True,
    ),
    "a_table_without_a_key_is_altered_after_its_rows": Case(
        [put(1000, {"id": "1", "v": "a"}, key=()), put(3000, {"id": "3"}, key=(), batch=7)],
        [run(2000, "ALTER TABLE x DROP COLUMN v", batch=6)],
        _rows((1,), (3,), columns="id"),
        create="CREATE TABLE x (id INT, v VARCHAR(20))",
        late=True,
    ),
    # ---- rows come in the cut after, that lie before the statement
    "a_row_from_before_its_column_was_added": Case(
        [
            run(2000, "ALTER TABLE x ADD COLUMN n INT NOT NULL DEFAULT 7", batch=6),
            put(3000, {"id": "3", "v": "c", "n": "5"}, 0),
        ],
        [put(1500, {"id": "1", "v": "a"}, batch=4), change(1600, {"id": "1", "v": "b"}, {"v": "a"}, batch=4)],
        _rows((1, "b", 7), (3, "c", 5), columns="id v n"),
        late=True,
    ),
    "a_row_from_before_its_column_was_dropped": Case(
        [run(2000, "ALTER TABLE x DROP COLUMN v", batch=6)],
        [put(1500, {"id": "1", "v": "a"}, batch=4)],
        _rows((1,), columns="id"),
        late=True,
    ),
    "a_row_from_before_its_column_was_renamed": Case(
        [run(2000, "ALTER TABLE x RENAME COLUMN v TO w", batch=6)],
        [put(1500, {"id": "1", "v": "a"}, batch=4)],
        _rows((1, "a"), columns="id w"),
        late=True,
    ),
    "a_row_from_before_its_columns_were_rounded": Case(
        [
            put(1000, _PRECISE, key=(), types=_PRECISE_TYPES),
            run(2000, "ALTER TABLE x MODIFY t TIME, MODIFY d DECIMAL(40,1), CHANGE at moment DATETIME(1)", batch=6),
        ],
        [take(1500, _PRECISE, key=(), batch=4, types=_PRECISE_TYPES)]
        + [put(1501, _PRECISE | {"v": "again"}, key=(), batch=4, types=_PRECISE_TYPES)],
        _rows(
            ("again", "-01:00:00", "10.0", datetime(2026, 1, 1, 0, 0, 0)),
            columns="v t d moment",
        ),
        create="CREATE TABLE x (v VARCHAR(20), t TIME(3), d DECIMAL(40,3), at DATETIME(2))",
        late=True,
    ),
    "a_row_from_before_its_key_was_renamed": Case(
        [put(1000, {"id": "1", "v": "a"}), run(2000, "ALTER TABLE x RENAME COLUMN id TO k", batch=6)],
        [
            change(1500, {"id": "1", "v": "b"}, {"v": "a"}, batch=4),
            take(3000, {"k": "1", "v": "b"}, batch=7, key=("k",)),
        ]
        + [put(3001, {"k": "2", "v": "c"}, batch=7, key=("k",))],
        _rows((2, "c"), columns="k v"),
        late=True,
    ),
    "a_row_from_before_its_table_was_renamed": Case(
        [put(1000, {"id": "1", "v": "a"}), run(2000, "RENAME TABLE x TO x_new", kind="RENAME", batch=6, table="x_new")],
        [change(1500, {"id": "1", "v": "b"}, {"v": "a"}, batch=4), put(1501, {"id": "2", "v": "c"}, batch=4)],
        None,
        others={"x_new": _rows((1, "b"), (2, "c"))},
        late=True,
    ),
    "a_row_from_before_its_table_was_emptied": Case(
        [put(1000, {"id": "1", "v": "a"}), run(2000, "TRUNCATE TABLE x", kind="TRUNCATE", batch=6)],
        [put(1500, {"id": "2", "v": "b"}, batch=4), put(3000, {"id": "3", "v": "c"}, batch=7)],
        _rows((3, "c")),
        late=True,
    ),
}


@dataclass
class Ingested:
    paths: LakePaths
    late: set[str]
    """The tables with something late after the second slice."""
    changed: set[str]
    """The tables that the rebuild has changed."""
    entries: dict[TableName, MirrorEntry]
    """The mirrors after the rebuild."""


@pytest.fixture(scope="module")
def ingested(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ingested:
    """All cases in one lake, then rebuilt."""
    return _ingest(spark, tmp_path_factory.mktemp("hashed"), CASES)


def _ingest(spark: SparkSession, folder: Path, cases: Mapping[str, Case]) -> Ingested:
    """Ingests the cases, each with a topic and tables of its name (`x` in the messages)."""
    paths = LakePaths(str(folder / "lake"), "shop")
    topics = {name: Topic(name) for name in cases}
    for number in range(2):
        for name, case in cases.items():
            made = [run(500, case.create, kind="CREATE", batch=1)] if case.create and number == 0 else []
            for payload, partition in [*made, *(case.first, case.second)[number]]:
                renamed = re.sub(r'(TABLE |TO |INTO |"table": ")x(_new)?\b', rf"\g<1>{name}\g<2>", payload)
                topics[name].send(renamed, partition)
            topics[name].write(folder / "captures", f"{number}-{name}.jsonl")
        ingest(spark, paths, folder / "captures")
    lake = Lake(spark, paths)
    entries = published_entries(published_cut(lake), paths)
    late = {entry.name.table for entry in entries if any("arrived after the mirror" in gap for gap in entry.gaps)}
    report = Rebuilder(CutMaker(lake, "rebuild", "UTC", 2, lambda _: None)).rebuild()
    changed = {table.table.split(".")[-1] for table in report.tables if not table.equal}
    return Ingested(
        paths, late, changed, {entry.name: entry for entry in published_entries(published_cut(lake), paths)}
    )


@pytest.mark.parametrize("name", CASES)
def test_the_table_is_upstreams(ingested: Ingested, spark: SparkSession, name: str) -> None:
    _assert_upstreams(ingested, spark, name, CASES[name])


def test_an_earlier_change_that_the_cut_does_not_read_counts(spark: SparkSession, tmp_path: Path) -> None:
    """Alone in its lake."""
    case = Case(
        [put(1000, {"id": "1", "v": "a"}), change(20_000, {"id": "2", "v": "a"}, {"id": "1"}, 0)]
        + [put(21_000, {"id": "1", "v": "b"}, es=5)],
        [change(30_000, {"id": "3", "v": "b"}, {"id": "1"}, 2, batch=6, es=10)]
        + [put(30_000, {"id": "1", "v": "c"}, batch=6, es=10)],
        _rows((1, "c"), (2, "a"), (3, "b")),
    )
    _assert_upstreams(_ingest(spark, tmp_path, {"alone": case}), spark, "alone", case)


def _assert_upstreams(ingested: Ingested, spark: SparkSession, name: str, case: Case) -> None:
    wanted = {name: case.rows} | {table.replace("x_", f"{name}_"): rows for table, rows in case.others.items()}
    for table, rows in wanted.items():
        entry = ingested.entries.get(TableName("db", table))
        if rows is None:
            assert entry is None
            continue
        assert entry is not None
        doubts = [case.gap in gap for gap in entry.gaps]
        assert doubts == ([True] if case.doubt else []), entry.gaps
        mirror = spark.read.format("delta").load(entry.path)
        columns = [column for column in mirror.columns if not column.startswith("_")]
        found = [row.asDict() for row in mirror.select(*columns).collect()]
        assert sorted(found, key=str) == sorted(rows, key=str)


def test_only_tables_with_something_late_are_rebuilt(ingested: Ingested) -> None:
    late = {name for name, case in CASES.items() if case.late}
    # its late rows have a name that no mirror has any more: only the check `no_breach` reports them
    without_mirror = {"a_row_from_before_its_table_was_renamed"}
    assert {table.removesuffix("_new") for table in ingested.late} == late - without_mirror
    assert {table.removesuffix("_new") for table in ingested.changed} <= late


def test_nothing_is_lost_or_counted_twice(ingested: Ingested, spark: SparkSession) -> None:
    balance = lake_balance(Lake(spark, ingested.paths))
    assert balance.is_balanced, balance


def test_every_statement_fits(ingested: Ingested, spark: SparkSession) -> None:
    history = spark.read.format("delta").load(ingested.paths.table("ddl_history"))
    assert [row["effect"] for row in history.where("status <> 'applied'").collect()] == []
