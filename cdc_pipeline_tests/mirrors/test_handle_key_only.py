"""Rows of TiCDC that were too large for a message and came with their handle key only: one stream, in two runs."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.gaps import gap_texts
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.large_messages import only_handle_key
from cdc_pipeline_tests.support.messages import Topic, ddl, row, watermark

_COLUMNS = "(id INT PRIMARY KEY, v VARCHAR(20) NOT NULL, b TEXT)"
_TYPES = {"id": "int", "v": "varchar", "b": "text", "ref": "varchar", "n": "int", "s": "int"}


def _change(
    kind: str, table: str, step: int, data: dict[str, str | None], old: dict[str, str | None] | None = None
) -> str:
    key = [] if table in ("unique", "unseen_unique") else ["id"]
    return row(kind, table, step, data, old=old, types={name: _TYPES[name] for name in data}, key=key)


def _insert(table: str, step: int, number: int, text: str = "a") -> str:
    return _change("INSERT", table, step, {"id": str(number), "v": text, "b": f"{text}{number}"})


def _update(table: str, step: int, number: int, text: str, before: str = "a") -> str:
    image: dict[str, str | None] = {"id": str(number), "v": text, "b": f"{text}{number}"}
    return _change("UPDATE", table, step, image, {"id": str(number), "v": before, "b": f"{before}{number}"})


def _bare(message: str, *key: str) -> str:
    return only_handle_key(message, key or ("id",))


def _delete(table: str, step: int, number: int) -> str:
    return _change("DELETE", table, step, {"id": str(number), "v": "a", "b": "a"})


_COMPLETE, _LEFT, _GENERATED, _UNIQUE, _UNSEEN = "complete", "left", "generated", "unique", "unseen"
FIRST = (
    *(ddl(f"CREATE TABLE {table} {_COLUMNS}", 1, table=table, kind="CREATE") for table in (_COMPLETE, _LEFT)),
    ddl(
        "CREATE TABLE generated (id INT PRIMARY KEY, n INT, twice INT AS (n * 2) VIRTUAL, s INT AS (n + 1) STORED)",
        1,
        table=_GENERATED,
        kind="CREATE",
    ),
    ddl("CREATE TABLE `unique` (v TEXT, ref VARCHAR(20) NOT NULL UNIQUE)", 1, table=_UNIQUE, kind="CREATE"),
    # complete: other messages have the columns of all rows that came with the key alone
    _bare(_insert(_COMPLETE, 2, 1)),
    _update(_COMPLETE, 3, 1, "later"),
    _bare(_insert(_COMPLETE, 2, 2)),
    _delete(_COMPLETE, 3, 2),
    _bare(_insert(_COMPLETE, 2, 3)),
    _insert(_COMPLETE, 2, 3, "again"),
    _insert(_COMPLETE, 2, 4, "before"),
    _bare(_insert(_COMPLETE, 2, 4)),
    _insert(_COMPLETE, 2, 5),
    _bare(_update(_COMPLETE, 3, 5, "big")),
    _update(_COMPLETE, 3, 5, "big"),
    _insert(_COMPLETE, 2, 6),
    _update(_COMPLETE, 3, 6, "big"),
    _bare(_update(_COMPLETE, 3, 6, "big")),
    _insert(_COMPLETE, 2, 7),
    _bare(_delete(_COMPLETE, 3, 7)),
    _insert(_COMPLETE, 2, 8),
    _insert(_COMPLETE, 2, 9),
    # a change of a unique column comes as both, of one commit TSO
    _delete(_COMPLETE, 3, 9),
    _insert(_COMPLETE, 3, 9, "split"),
    # left: nothing tells of them
    _bare(_insert(_LEFT, 2, 1)),
    _insert(_LEFT, 2, 2),
    _bare(_update(_LEFT, 3, 2, "big")),
    _bare(_update(_LEFT, 4, 2, "bigger", "big")),
    _bare(_update(_LEFT, 3, 3, "never seen")),
    _insert(_LEFT, 2, 4),
    _insert(_LEFT, 2, 5),
    _bare(_delete(_LEFT, 3, 5)),
    _bare(_insert(_LEFT, 3, 5)),
    # what upstream computes: of rows that are there the values are computed as ever
    *(_change("INSERT", _GENERATED, 2, {"id": str(number), "n": "5", "s": "6"}) for number in (1, 2)),
    _bare(_change("UPDATE", _GENERATED, 3, {"id": "2", "n": "7", "s": "8"}, {"id": "2", "n": "5", "s": "6"})),
    _bare(_change("INSERT", _GENERATED, 3, {"id": "3", "n": "7", "s": "8"})),
    # known by a UNIQUE key, which the messages do not name
    *(_change("INSERT", _UNIQUE, 2, {"v": f"v{ref}", "ref": ref}) for ref in ("A", "B", "C")),
    _bare(_change("UPDATE", _UNIQUE, 3, {"v": "big", "ref": "A"}, {"v": "vA", "ref": "A"}), "ref"),
    _bare(_change("DELETE", _UNIQUE, 3, {"v": "vB", "ref": "B"}), "ref"),
    # without a definition the columns are those of the rows that have them, in their order
    _bare(_change("INSERT", _UNSEEN, 2, {"b": "x", "id": "1"})),
    _change("INSERT", _UNSEEN, 2, {"b": "y", "id": "2"}),
    watermark(5),
)
SECOND = (
    _bare(_update(_COMPLETE, 6, 8, "big")),
    _update(_COMPLETE, 7, 8, "known", "big"),
    _bare(_delete(_COMPLETE, 6, 9)),
    _bare(_update(_LEFT, 6, 4, "big")),
    _update(_LEFT, 6, 1, "known at last"),
    _bare(_change("UPDATE", _GENERATED, 6, {"id": "1", "n": "9", "s": "10"}, {"id": "1", "n": "5", "s": "6"})),
    _change("UPDATE", _GENERATED, 6, {"id": "2", "n": "8", "s": "9"}, {"id": "2", "n": "7", "s": "8"}),
    _bare(_change("UPDATE", _UNIQUE, 6, {"v": "big", "ref": "D"}, {"v": "vC", "ref": "C"}), "ref"),
    watermark(9),
)
EXPECTED: dict[str, list[list[tuple[Any, ...]]]] = {
    _COMPLETE: [
        [
            *((1, "later", "later1"), (3, "again", "again3"), (4, "before", "before4"), (5, "big", "big5")),
            *((6, "big", "big6"), (8, "a", "a8"), (9, "split", "split9")),
        ],
        [
            *((1, "later", "later1"), (3, "again", "again3"), (4, "before", "before4"), (5, "big", "big5")),
            *((6, "big", "big6"), (8, "known", "known8")),
        ],
    ],
    _LEFT: [
        [(1, None, None), (2, "a", "a2"), (3, None, None), (4, "a", "a4"), (5, None, None)],
        [(1, "known at last", "known at last1"), (2, "a", "a2"), (3, None, None), (4, "a", "a4"), (5, None, None)],
    ],
    _GENERATED: [
        [(1, 5, 10, 6), (2, 5, 10, 6), (3, None, None, None)],
        [(1, 5, 10, 6), (2, 8, 16, 9), (3, None, None, None)],
    ],
    _UNIQUE: [[("vA", "A"), ("vC", "C")], [("vA", "A"), (None, "D")]],
    _UNSEEN: [[("y", 2), (None, 1)]] * 2,
}


def _gap(rows: int, first: int) -> str:
    return (
        f"{rows} row(s) were too large for a message and were sent with their handle key only, the first at t/0@{first}: "
        "their other columns keep the earlier values, or are NULL if there were none"
    )


def _offset(message: str) -> int:
    return (*FIRST, *SECOND).index(message)


@pytest.fixture(scope="module")
def known(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, way: str
) -> tuple[LakePaths, dict[str, list[list[tuple[Any, ...]]]]]:
    folder, topic = tmp_path_factory.mktemp(f"handle_key-{way}"), Topic()
    paths = LakePaths(str(folder / "lake"), "shop")
    rows: dict[str, list[list[tuple[Any, ...]]]] = {table: [] for table in EXPECTED}
    for number, messages in enumerate((FIRST, SECOND)):
        for message in messages:
            topic.send(message)
        topic.write(folder / "captures", f"{number}.jsonl")
        ingest(spark, paths, folder / "captures")
        for table, found in rows.items():
            mirror = spark.read.format("delta").load(paths.mirror(TableName("db", table)))
            found.append(sorted((tuple(row)[:-4] for row in mirror.collect()), key=str))
    return paths, rows


@pytest.mark.parametrize("table", EXPECTED)
def test_rows(known: tuple[LakePaths, dict[str, list[list[tuple[Any, ...]]]]], table: str) -> None:
    assert known[1][table] == [sorted(rows, key=str) for rows in EXPECTED[table]]


def _gaps(spark: SparkSession, paths: LakePaths, table: str) -> tuple[str, ...]:
    state = table_state(spark, paths.mirror(TableName("db", table)))
    assert state is not None
    return gap_texts(MirrorState.from_properties(state.properties).gaps)


def test_gaps_say_how_many_rows_and_which_message_was_first(known: tuple[LakePaths, Any], spark: SparkSession) -> None:
    paths = known[0]
    found = {table: _gaps(spark, paths, table) for table in EXPECTED}
    unseen = found.pop(_UNSEEN)
    first = {
        _LEFT: FIRST.index(_bare(_insert(_LEFT, 2, 1))),
        _GENERATED: FIRST.index(
            _bare(_change("UPDATE", _GENERATED, 3, {"id": "2", "n": "7", "s": "8"}, {"id": "2", "n": "5", "s": "6"}))
        ),
    }
    unique = _bare(_change("UPDATE", _UNIQUE, 3, {"v": "big", "ref": "A"}, {"v": "vA", "ref": "A"}), "ref")
    assert found == {
        _COMPLETE: (),
        _LEFT: (_gap(4, first[_LEFT]), _gap(1, _offset(_bare(_update(_LEFT, 6, 4, "big"))))),
        _GENERATED: (_gap(2, first[_GENERATED]), _gap(1, len(FIRST) + 5)),
        _UNIQUE: (_gap(1, _offset(unique)), _gap(1, len(FIRST) + 7)),
    }
    assert unseen[1:] == (_gap(1, len(FIRST) - 3),)
    assert unseen[0].startswith("no CREATE TABLE was seen")


def test_nothing_became_a_dead_letter_and_changes_balance(known: tuple[LakePaths, Any], spark: SparkSession) -> None:
    paths = known[0]
    assert spark.read.format("delta").load(paths.table("dead_letters")).isEmpty()
    balance = lake_balance(Lake(spark, paths))
    assert balance.is_balanced
    assert balance.decoded == sum('"isDdl": false' in text and "WATERMARK" not in text for text in (*FIRST, *SECOND))


def test_a_rebuild_makes_the_same_rows(known: tuple[LakePaths, Any], spark: SparkSession) -> None:
    """In one cut: where a later change known of a row, its gap is not there any more."""
    paths = known[0]
    report = Rebuilder(CutMaker(Lake(spark, paths), "again", "UTC", 2, lambda _: None)).rebuild()
    assert {table.table: table.equal for table in report.tables} == dict.fromkeys(
        (table.table for table in report.tables), True
    )
    assert _gaps(spark, paths, _LEFT) == (_gap(4, _offset(_bare(_update(_LEFT, 3, 2, "big")))),)
    assert _gaps(spark, paths, _COMPLETE) == ()
