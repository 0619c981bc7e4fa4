"""A lake that is taken back to an earlier point: from a copy it goes on, after Delta's RESTORE it says why it does not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_pipeline.errors import LakeError
from cdc_pipeline.mirrors.progress import published_cut
from cdc_pipeline.resources.lake import LakePaths
from cdc_pipeline.schemas.table import TableName
from cdc_pipeline_tests.messages import Topic, tso, watermark
from cdc_pipeline_tests.mirrors.stories import create, put, update
from cdc_pipeline_tests.pipelines import ingest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _rows(spark: SparkSession, paths: LakePaths) -> list[tuple[int, str]]:
    frame = spark.read.format("delta").load(paths.mirror(TableName("db", "t")))
    return sorted((row["id"], row["v"]) for row in frame.collect())


def test_a_copy_goes_on_and_a_restored_table_does_not(spark: SparkSession, tmp_path: Path) -> None:
    paths, copy = LakePaths(str(tmp_path / "lake"), "shop"), LakePaths(str(tmp_path / "copy"), "shop")
    captures, topic = tmp_path / "captures", Topic()
    told = [(create("t", 1), put("t", 2, "1", "a")), (update("t", 12, ("1", "a"), ("1", "b")), put("t", 13, "2", "c"))]
    for number, messages in enumerate(told):
        for payload, _ in messages:
            topic.send(payload)
        topic.send(watermark(10 + 10 * number)).write(captures, f"{number}.jsonl")
        ingest(spark, paths, captures)
        if number == 0:
            shutil.copytree(paths.home, copy.home)
    after = [(1, "b"), (2, "c")]
    assert _rows(spark, paths) == after

    # the folder as it was after the first cut, at another place: what came later is taken in again
    assert (_rows(spark, copy), published_cut(spark, copy).resolved_tso) == ([(1, "a")], tso(10))
    ingest(spark, copy, captures)
    assert (_rows(spark, copy), published_cut(spark, copy).resolved_tso) == (after, tso(20))

    # Delta would take the second cut's commits for being in, and the mirror would stay behind for ever
    for table in ("consistent_cuts", "batches", "mirror/db/t"):
        version = 1 if table == "mirror/db/t" else 0
        spark.sql(f"RESTORE TABLE delta.`{Path(paths.home) / table}` TO VERSION AS OF {version}")
    assert _rows(spark, paths) == [(1, "a")]
    with pytest.raises(
        LakeError, match="ends with cut 1, though cut 2 was committed: it was taken back, as by RESTORE"
    ):
        ingest(spark, paths, captures)
