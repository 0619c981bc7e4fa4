"""Progress of the streams, and the published cut."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.writes import append_once
from cdc_pipeline.mirrors.changes.progress import (
    PublishedCut,
    StreamProgress,
    published_cut,
    read_progress,
    with_ends,
)
from cdc_pipeline.mirrors.settings.selection import ALL_TABLES, SELECTION_JSON

_BATCHES = (
    "batch_id BIGINT, exact_ts BOOLEAN, ended ARRAY<STRING>, row_changes BIGINT, "
    "offsets ARRAY<STRUCT<topic: STRING, `partition`: INT, first: BIGINT, last: BIGINT, records: BIGINT>>, "
    "heartbeats MAP<STRING, BIGINT>, oldest_at BIGINT, newest_at BIGINT"
)
_RANGES = [(topic, partition, 0, 9, 10) for topic, partition in (("old", 0), ("new", 0), ("new", 1))]
_TOPIC = "topic STRING, `partition` INT, watermark_ts BIGINT"
_WATERMARKS = [("old", 0, 5), ("new", 0, 30), ("new", 0, 20), ("new", 1, 25)]


@pytest.mark.parametrize(
    ("ended", "resolved", "held_by"),
    [
        ([], 5, "old/0"),
        (["old"], 25, "new/1"),
        (["another"], 5, "old/0"),
        # if all topics ended, their last watermarks count
        (["old", "new"], 5, "old/0"),
    ],
)
def test_ended_topics_are_ignored(
    ended: list[str], resolved: int, held_by: str, spark: SparkSession, paths: LakePaths
) -> None:
    """The newest batch lists them."""
    batches = [(1, True, ["new"], 7, _RANGES, {}, 1, 9), (2, True, ended, 8, [], {}, 2, 8)]
    spark.createDataFrame(batches, _BATCHES).write.format("delta").save(paths.table("batches"))
    rows = spark.createDataFrame(_WATERMARKS, _TOPIC)
    rows.write.format("delta").save(paths.table("watermarks"))
    streams = read_progress(Lake(spark, paths))
    assert (streams.last_batch, streams.resolved_tso, streams.held_by) == (2, resolved, held_by)


_AFTER_TWO = PublishedCut(1, 25, 2, ())
_NEW = [("new", 0, 0, 9, 10)]


@pytest.mark.parametrize(
    ("batch", "watermarks", "resolved", "held_by", "waiting"),
    [
        # nothing new
        (None, [], 25, "new/1", ()),
        # a silent partition keeps the resolved TSO
        ((False, _NEW), [("new", 0, 90)], 25, "new/1", ()),
        ((True, _NEW), [("new", 0, 90), ("new", 1, 80)], 80, "new/1", ()),
        # a new partition
        ((False, [("new", 2, 0, 0, 1)]), [("new", 0, 90), ("new", 1, 80)], None, None, ("new/2",)),
        ((False, [("new", 2, 0, 0, 1)]), [("new", 0, 90), ("new", 1, 80), ("new", 2, 70)], 70, "new/2", ()),
        # a new partition whose first watermark is below the published TSO
        ((False, [("new", 2, 0, 0, 1)]), [("new", 0, 90), ("new", 1, 80), ("new", 2, 9)], 9, "new/2", ()),
    ],
)
def test_progress_from_a_cut_on_equals_the_full_progress(
    batch: tuple[bool, list[tuple[object, ...]]] | None,
    watermarks: list[tuple[object, ...]],
    resolved: int | None,
    held_by: str | None,
    waiting: tuple[str, ...],
    spark: SparkSession,
    paths: LakePaths,
) -> None:
    batches: list[tuple[object, ...]] = [
        (1, True, [], 7, _RANGES[1:], {}, 1, 9),
        (2, False, [], 8, _RANGES[1:], {}, 2, 8),
    ]
    if batch is not None:
        batches.append((3, batch[0], [], 9, batch[1], {}, 3, 10))
    spark.createDataFrame(batches, _BATCHES).write.format("delta").save(paths.table("batches"))
    rows = spark.createDataFrame([*_WATERMARKS[1:], *watermarks], _TOPIC)
    rows.write.format("delta").save(paths.table("watermarks"))
    streams, whole = read_progress(Lake(spark, paths), _AFTER_TWO), read_progress(Lake(spark, paths))
    assert (streams.resolved_tso, streams.held_by, streams.without_watermark) == (resolved, held_by, waiting)
    new = {"new_row_changes": 0, "new_span": None}
    assert replace(streams, **new) == replace(whole, **new)  # type: ignore[arg-type]
    assert waiting or resolved == 9 or streams.new_row_changes == (9 if batch else 0)


_SECOND = 1000 << 18


@pytest.mark.parametrize(
    ("applied", "unread", "ends"),
    [
        # nothing new in the source: above the newest; "quiet" has nothing since the cut
        ({"quiet": 7}, (), {"busy": 9 * _SECOND + 1, "other": 3 * _SECOND + 1, "quiet": 7}),
        ({}, ("busy",), {"busy": 8 * _SECOND, "other": 3 * _SECOND + 1}),
        ({}, None, {"busy": 8 * _SECOND, "other": 2 * _SECOND}),
        # ends never decrease
        ({"busy": 9 * _SECOND}, ("busy",), {"busy": 9 * _SECOND, "other": 3 * _SECOND + 1}),
    ],
)
def test_the_ends_of_topics_without_tsos(
    applied: dict[str, int], unread: tuple[str, ...] | None, ends: dict[str, int], spark: SparkSession, paths: LakePaths
) -> None:
    lake = _without_tsos(spark, paths, [("busy", 4 * _SECOND, None)])
    streams = StreamProgress(2, False, None, None, ())
    found = with_ends(lake, streams, PublishedCut(1, None, 0, (), ends=applied), lambda: unread)
    assert (found.ends, found.oldest["busy"]) == (ends, 4 * _SECOND)


def test_a_statement_of_canal_waits_for_the_other_topics(spark: SparkSession, paths: LakePaths) -> None:
    """Threads build the topics of a batch, so a row before the statement may have a higher `ts` (canal-facts 49)."""
    statement = 3 * _SECOND - 5
    streams = StreamProgress(2, False, None, None, ())
    for unread, end in ((("busy", "other"), statement), (("busy",), 8 * _SECOND)):
        lake = _without_tsos(spark, LakePaths(f"{paths.root}/{len(unread)}", "shop"), [("busy", statement, 7)])
        assert with_ends(lake, streams, unread=lambda unread=unread: unread).ends["busy"] == end  # type: ignore[misc]


def _without_tsos(spark: SparkSession, paths: LakePaths, statements: list[tuple[str, int, int | None]]) -> Lake:
    """`change_log` up to 9 s (busy) and 3 s (other) of the clock, in two batches."""
    changes = [("busy", 5 * _SECOND, 1), ("busy", 9 * _SECOND, 2), ("other", 3 * _SECOND, 2)]
    columns = "topic STRING, at BIGINT, batch_id BIGINT"
    spark.createDataFrame(changes, columns).write.format("delta").save(paths.table("change_log"))
    rows = [(topic, at, 1, number) for topic, at, number in statements]
    found = spark.createDataFrame(rows, f"{columns}, message_id BIGINT")
    found.write.format("delta").save(paths.table("ddl_history"))
    return Lake(spark, paths)


def test_the_newest_cut_is_found_with_and_without_its_writer_version(spark: SparkSession, paths: LakePaths) -> None:
    """Its last file is read. A copied table, without writer versions, and a restored one are read completely."""
    path = paths.table("consistent_cuts")
    for cut_id in (1, 2):
        append_once(_cut(spark, cut_id), path, Commit(paths.app_id("consistent_cuts"), cut_id, {}))
    assert published_cut(Lake(spark, paths)).cut_id == 2
    spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF 0")
    assert published_cut(Lake(spark, paths)).cut_id == 1
    copy = LakePaths(f"{paths.root}/copy", paths.pipeline)
    _cut(spark, 4).unionByName(_cut(spark, 3)).write.format("delta").save(copy.table("consistent_cuts"))
    assert published_cut(Lake(spark, copy)).cut_id == 4


def _cut(spark: SparkSession, cut_id: int) -> DataFrame:
    columns = (
        "cut_id BIGINT, resolved_tso BIGINT, last_batch BIGINT, pending BIGINT, selection STRING, "
        "heartbeats MAP<STRING, BIGINT>, ends MAP<STRING, BIGINT>"
    )
    nothing = "ARRAY<STRUCT<database: STRING, `table`: STRING>>"
    row = (cut_id, 25, 2, 0, SELECTION_JSON.to_json(ALL_TABLES), {}, {}, [], [])
    return spark.createDataFrame([row], f"{columns}, mirrors {nothing}, held {nothing}")
