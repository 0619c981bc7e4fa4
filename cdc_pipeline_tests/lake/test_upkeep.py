"""Compaction of small files and short logs, on tables that Spark writes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.lake.delta import Commit, committed_version, row_count
from cdc_pipeline.lake.delta_log import readable_version
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.restored_tables import require_not_restored
from cdc_pipeline.lake.upkeep import compact_small_files, shorten_log
from cdc_pipeline.lake.writes import append_once

_VERSIONS = 25


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of 25 commits, a minute apart."""
    path = str(tmp_path_factory.mktemp("upkeep") / "p" / "raw_topic_snapshot")
    for number in range(_VERSIONS):
        append_once(spark.range(number, number + 1), path, Commit("cdc:p:raw", number, {"batch": number}))
    log = Path(path, "_delta_log")
    for file in log.glob("0*"):
        moment = time.time() - 60 * (_VERSIONS - int(file.name[:20]))
        os.utime(file, (moment, moment))
    return path


def test_a_log_that_its_owner_keeps(spark: SparkSession, table: str, tmp_path: Path) -> None:
    path = str(tmp_path / "kept")
    spark.sql(f"CREATE TABLE delta.`{path}` SHALLOW CLONE delta.`{table}`")
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 30 days')")
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    shorten_log(spark, path, 1)
    assert readable_version(spark, path, 0) == 0


def test_small_files_become_one_and_old_commits_go(spark: SparkSession, table: str) -> None:
    log = Path(table, "_delta_log")
    assert compact_small_files(spark, table) == (_VERSIONS, 1)
    assert compact_small_files(spark, table) == (0, 0)
    shorten_log(spark, table, 100)
    assert readable_version(spark, table, 0) == 0
    shorten_log(spark, table, 10)
    # the newest ten, and those back to the checkpoint that the oldest of them needs
    oldest = min(int(file.stem) for file in log.glob("0*.json"))
    assert oldest == 10
    assert [readable_version(spark, table, version) for version in (oldest - 1, oldest)] == [None, oldest]
    # only OPTIMIZE has committed since
    assert readable_version(spark, table, _VERSIONS - 1) == _VERSIONS
    assert spark.read.format("delta").option("versionAsOf", _VERSIONS - 10).load(table).count() == _VERSIONS - 9
    shorten_log(spark, table, 10)
    assert row_count(spark, table) == spark.read.format("delta").load(table).count() == _VERSIONS
    assert committed_version(spark, table, "cdc:p:raw") == _VERSIONS - 1
    require_not_restored(Lake(spark, LakePaths(str(Path(table).parent.parent), "p")), table)


def test_there_is_no_table(spark: SparkSession, tmp_path: Path) -> None:
    shorten_log(spark, str(tmp_path / "none"), 10)
