"""How far the streams are, and what holds them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cdc_pipeline.mirrors.progress import stream_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_pipeline.resources.lake import LakePaths

_BATCHES = (
    "batch_id BIGINT, exact_ts BOOLEAN, ended ARRAY<STRING>, "
    "offsets ARRAY<STRUCT<topic: STRING, `partition`: INT, first: BIGINT, last: BIGINT, records: BIGINT>>"
)
_RANGES = [(topic, partition, 0, 9, 10) for topic, partition in (("old", 0), ("new", 0), ("new", 1))]
_WATERMARKS = [("old", 0, 5), ("new", 0, 30), ("new", 0, 20), ("new", 1, 25)]


@pytest.mark.parametrize(
    ("ended", "resolved", "held_by"),
    [
        ([], 5, "old/0"),
        (["old"], 25, "new/1"),
        (["another"], 5, "old/0"),
        # where nothing else is left, the last word of what has ended still counts
        (["old", "new"], 5, "old/0"),
    ],
)
def test_a_topic_that_has_ended_holds_nothing_back(
    ended: list[str], resolved: int, held_by: str, spark: SparkSession, paths: LakePaths
) -> None:
    """The newest batch says which have."""
    batches = [(1, True, ["new"], _RANGES), (2, True, ended, [])]
    spark.createDataFrame(batches, _BATCHES).write.format("delta").save(paths.table("batches"))
    rows = spark.createDataFrame(_WATERMARKS, "topic STRING, `partition` INT, watermark_ts BIGINT")
    rows.write.format("delta").save(paths.table("watermarks"))
    streams = stream_progress(spark, paths)
    assert (streams.last_batch, streams.resolved_tso, streams.held_by) == (2, resolved, held_by)
