"""Topics whose tables are gone do not hold back the others. Capture `world-ticdc-topic-ends` has such a stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import dagster as dg
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from cdc_pipeline.checks.streams import watermarks_result
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.ended_topics import ended_topics
from cdc_pipeline.mirrors.changes.progress import NO_CUT, PublishedCut, read_progress
from cdc_pipeline.mysql.ddl.statements import DDL_EVENT
from cdc_pipeline.positions import Position
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.messages import Topic, ddl, row, tso, watermark, watermark_tso


@dataclass
class Case:
    """The records of the topics `shop_a` and `default`, whose newest batch is 2. Times are in seconds."""

    statements: tuple[tuple[str, str, int, int], ...] = (("shop_a", "DROP TABLE shop.a", 10, 1),)
    """(topic, text, `commit_ts`, batch)"""
    changes: tuple[tuple[str, str, int], ...] = (("shop_a", "a", 9),)
    """(topic, table, `commit_ts`)"""
    watermarks: dict[int, int | None] = field(default_factory=lambda: {0: 11})
    """Of the partitions of `shop_a`."""
    newest: int = 20
    """The watermark of `default`."""
    has_new: tuple[int, ...] = ()
    """The partitions of `shop_a` with records in the newest batch."""
    topic: str = "shop_a"


ENDED = {
    "the new architecture sends one more watermark": Case(),
    "in the same batch": Case((("shop_a", "DROP TABLE shop.a", 10, 2),), has_new=(0,)),
    "renamed away": Case((("shop_a", "RENAME TABLE shop.a TO shop.b", 10, 1),)),
    "with its database": Case((("default", "DROP DATABASE shop", 10, 1),)),
    "the classic architecture sends none": Case(watermarks={0: 8, 1: 8, 2: 9}),
    "without a watermark": Case(watermarks={0: None}),
    "without a watermark, in a batch of an hour": Case(watermarks={0: None}, newest=3600),
    "without a change": Case(changes=()),
    "names in another case": Case((("shop_a", "DROP TABLE Shop.A", 10, 1),)),
    "created again and dropped again": Case(
        (
            ("shop_a", "DROP TABLE shop.a", 4, 1),
            ("shop_a", "CREATE TABLE shop.a (id INT)", 6, 1),
            ("shop_a", "DROP TABLE shop.a", 10, 1),
        )
    ),
}
NOT_ENDED = {
    "a watermark one second behind": Case(newest=12),
    "nothing was dropped": Case((("shop_a", "ALTER TABLE shop.a ADD c INT", 10, 1),)),
    "truncated": Case((("shop_a", "TRUNCATE TABLE shop.a", 10, 1),)),
    "a later change": Case(changes=(("shop_a", "a", 11),)),
    "created again": Case(
        (("shop_a", "DROP TABLE shop.a", 10, 1), ("shop_a", "CREATE TABLE shop.a (id INT)", 11, 1)),
    ),
    "another table has got the name": Case(
        (("shop_a", "DROP TABLE shop.a", 10, 1), ("shop_x", "RENAME TABLE shop.x TO shop.a", 11, 1)),
    ),
    "tables that exchange their names at one TSO": Case(
        (("shop_a", "RENAME TABLE shop.a TO shop.b", 10, 1), ("shop_b", "RENAME TABLE shop.b TO shop.a", 10, 1)),
    ),
    "another table in the topic": Case(changes=(("shop_a", "a", 9), ("shop_a", "xa", 9))),
    "no watermark has passed the statement": Case((("shop_a", "DROP TABLE shop.a", 21, 1),), watermarks={0: 8}),
    # rows before the statement may not be read yet
    "another partition has new records": Case(watermarks={0: 11, 1: 9}, has_new=(1,)),
    "the statement is in the newest batch": Case((("shop_a", "DROP TABLE shop.a", 10, 2),), watermarks={0: 11, 1: 9}),
    # tables without changes may share the topic
    "a topic of a database": Case((("shop", "DROP TABLE shop.a", 10, 1),), changes=(("shop", "a", 9),), topic="shop"),
    "the default topic": Case((("shop_a", "DROP DATABASE shop", 10, 1),), changes=()),
}


@pytest.mark.parametrize("name", [*ENDED, *NOT_ENDED])
def test_topics_end_with_their_last_table(name: str, paths: LakePaths) -> None:
    case = (ENDED | NOT_ENDED)[name]
    found = _ended(case, paths)
    at = len(case.statements) - 1
    assert found == ({case.topic: Position(case.statements[at][0], 0, at)} if name in ENDED else {})


def test_without_a_topic_that_is_behind_nothing_is_read(paths: LakePaths) -> None:
    watermarks = {("shop_a", 0): tso(19), ("shop_a", 1): tso(18), ("default", 0): tso(19)}
    assert ended_topics(Lake(cast(SparkSession, None), paths), watermarks, {}) == {}


_BATCHES = pa.schema(
    {
        "batch_id": pa.int64(),
        "exact_ts": pa.bool_(),
        "ended": pa.list_(pa.string()),
        "row_changes": pa.int64(),
        "offsets": pa.list_(pa.struct({"topic": pa.string(), "partition": pa.int32()})),
        "heartbeats": pa.map_(pa.string(), pa.int64()),
        "oldest_at": pa.int64(),
        "newest_at": pa.int64(),
    }
)


@pytest.mark.parametrize(
    ("topic", "mark", "resolved", "waiting"),
    [
        # nothing but watermarks
        ("default", 30, 30, ()),
        ("shop_new", None, None, ("shop_new/0",)),
        ("shop_new", 15, 15, ()),
        # records in one of its partitions: all of them count again
        ("shop_x", 12, 8, ()),
    ],
)
def test_a_topic_that_ended_before_a_cut_is_not_looked_at_again(
    topic: str, mark: int | None, resolved: int | None, waiting: tuple[str, ...], paths: LakePaths
) -> None:
    write_deltalake(
        paths.table("ddl_history"), pa.Table.from_pylist([_statement("shop_a", "DROP TABLE shop.a", 10, 1, 0)])
    )
    own = {"exact_ts": True, "row_changes": 1}
    old, new = (("shop_a", 0), ("shop_x", 0), ("shop_x", 1), ("default", 0)), (("default", 0), (topic, 0))
    batches = [
        {**own, "batch_id": number, "offsets": [{"topic": name, "partition": at} for name, at in spans]}
        for number, spans in ((1, old), (2, new))
    ]
    write_deltalake(paths.table("batches"), pa.Table.from_pylist(batches, _BATCHES))
    marks = [("shop_a", 0, 11), ("shop_x", 0, 8), ("shop_x", 1, 8), ("default", 0, 20), ("default", 0, 30)]
    marks += [] if mark is None else [(topic, 0, mark)]
    columns = ("topic", "partition", "watermark_ts")
    rows = [dict(zip(columns, (name, at, tso(step)), strict=True)) for name, at, step in marks]
    write_deltalake(paths.table("watermarks"), pa.Table.from_pylist(rows))
    with patch("cdc_pipeline.mirrors.changes.ended_topics.read_maxima", side_effect=AssertionError):
        found = read_progress(Lake(cast(SparkSession, None), paths), PublishedCut(1, tso(20), 1, ()))
    assert (found.resolved_tso, found.without_watermark) == (resolved and tso(resolved), waiting)
    assert (found.ended, found.new_row_changes) == ({}, 1)


def test_a_topic_counts_again_when_records_come(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    """Its table is created again. The check lists the topic in the batch in which it ended."""
    table, default, captures = Topic("db_a"), Topic("default"), tmp_path / "captures"
    create = ddl("CREATE TABLE db.a (id INT PRIMARY KEY)", 1, table="a", kind="CREATE")
    table.send(create).send(_row("1", 2)).send(watermark(3)).send(ddl("DROP TABLE db.a", 4, table="a", kind="ERASE"))
    table.send(watermark(5)).write(captures, "a1.jsonl")
    default.send(watermark(3)).send(watermark(20)).write(captures, "d1.jsonl")
    report = ingest(spark, paths, captures)
    assert (report.resolved_tso, report.mirrors) == (watermark_tso(20), ())
    with patch("cdc_pipeline.checks.streams.published_cut", return_value=NO_CUT):  # as before the cut
        found = watermarks_result(Lake(spark, paths), [1], 4, dg.AssetKey("watermarks"))
    assert found.passed
    assert "the statement at db_a/0@3 dropped or renamed its last table" in str(found.metadata["db_a"].value)

    table.send(create.replace(str(tso(1)), str(tso(22)))).send(_row("2", 23)).write(captures, "a2.jsonl")
    default.send(watermark(30)).write(captures, "d2.jsonl")
    assert ingest(spark, paths, captures).resolved_tso == watermark_tso(20)
    table.send(watermark(30)).write(captures, "a3.jsonl")
    report = ingest(spark, paths, captures)
    assert report.resolved_tso == watermark_tso(30)
    assert [(str(entry.name), entry.rows, entry.gaps) for entry in report.mirrors] == [("db.a", 1, ())]


def _row(key: str, step: int) -> str:
    return row("INSERT", "a", step, {"id": key}, types={"id": "int"}, key=["id"])


def _ended(case: Case, paths: LakePaths) -> dict[str, Position]:
    statements = [
        _statement(topic, sql, step, batch, offset) for offset, (topic, sql, step, batch) in enumerate(case.statements)
    ]
    write_deltalake(paths.table("ddl_history"), pa.Table.from_pylist(statements))
    changes = [
        {"topic": topic, "database": "shop", "table": table, "commit_ts": tso(step), "batch_id": 1}
        for topic, table, step in case.changes or (("default", "other", 1),)
    ]
    write_deltalake(paths.table("change_log"), pa.Table.from_pylist(changes))
    watermarks = {(case.topic, at): None if step is None else tso(step) for at, step in case.watermarks.items()}
    spans = [{"topic": case.topic, "partition": at} for at in case.has_new]
    batch = {"batch_id": 2, "offsets": [*spans, {"topic": "default", "partition": 0}]}
    return ended_topics(Lake(cast(SparkSession, None), paths), {**watermarks, ("default", 0): tso(case.newest)}, batch)


def _statement(topic: str, sql: str, step: int, batch: int, offset: int) -> dict[str, Any]:
    table = "" if "DATABASE" in sql else sql.split("shop.")[-1].split()[0] if "shop." in sql else "a"
    return {
        "topic": topic,
        "partition": 0,
        "offset": offset,
        "batch_id": batch,
        "kind": DDL_EVENT,
        "type": "QUERY",
        "dialect": "ticdc",
        "database": "shop",
        "table": table,
        "sql": sql,
        "commit_ts": tso(step),
        "at": tso(step),
        "exact_ts": True,
        "es": tso(step) >> 18,
        "ts": tso(step) >> 18,
        "message_id": 0,
    }
