"""Which cuts have to read `ddl_history`."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.tables.ddl_history import APPLIED, PENDING, may_have_statements
from cdc_pipeline.lake.writes import append_once
from cdc_pipeline.spark.small_frames import small_frame

_SCHEMA = "batch_id BIGINT, status STRING, cut_id BIGINT"


def test_statements_that_may_concern_a_cut(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, LakePaths(str(tmp_path), "p"))
    path = lake.paths.table("ddl_history")

    def add(version: int, *row: object) -> None:
        append_once(small_frame(spark, [row], _SCHEMA), path, Commit("cdc:p:ddl_history", version, {}))

    add(1, 3, APPLIED, 2)
    # a later batch; a cut that was begun and is planned again; neither
    assert [may_have_statements(lake, *at) for at in ((2, 3), (3, 2), (3, 3))] == [True, True, False]
    add(2, 3, PENDING, None)
    assert may_have_statements(lake, 3, 3)
    uri = Lake(spark, LakePaths(f"file:{tmp_path}", "p"))
    assert may_have_statements(uri, 9, 9)  # only a Spark query could tell
