"""A torn Delta log, a missing data file, a clock that jumps back."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.faults import to_lake_error
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.reading import read_cut
from cdc_pipeline.mirrors.operations.maintenance import Maintenance
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.folders import tree
from cdc_pipeline_tests.support.lakes.story_lake import FIRST, StoryLake, as_a_new_process
from cdc_pipeline_tests.support.messages import tso, watermark_tso

_TABLES = (
    *("raw_topic_snapshot", "change_log", "ddl_history", "watermarks", "dead_letters", "batches", "cut_plans"),
    *("consistent_cuts", "mirror/db/bag"),
)
_DAY = 86_400


@pytest.fixture
def lake(first_slice: StoryLake, tmp_path: Path) -> StoryLake:
    """A copy of the lake that the test may damage."""
    return first_slice.copied(tmp_path / "lake")


def _newest_commit(table: Path) -> Path:
    return max((table / "_delta_log").glob("*.json"))


def test_a_torn_log_is_reported_and_not_repaired(
    spark: SparkSession, lake: StoryLake, tmp_path: Path, counted: Callable[[str, int], None]
) -> None:
    for number, name in enumerate(_TABLES):
        table = Path(lake.paths.home) / name
        file, kept = _newest_commit(table), tmp_path / "kept"
        shutil.copy2(file, kept)
        if number % 2:
            file.write_bytes(b"")
        else:
            file.write_bytes(file.read_bytes()[:-20])
        as_a_new_process(spark)
        before = tree(table)
        with pytest.raises(LakeError) as caught:
            lake.run()
        assert f"the Delta log of {table} is damaged: {file.name}" in str(caught.value)
        assert tree(table) == before
        assert _published(lake) == tso(FIRST) or name == "consistent_cuts"
        shutil.copy2(kept, file)
        as_a_new_process(spark)
    counted("torn logs named", len(_TABLES))
    lake.run()
    lake.assert_right()


def _published(lake: StoryLake) -> int | None:
    try:
        return published_cut(Lake(lake.spark, lake.paths)).resolved_tso
    except LakeError:
        return None


def test_a_mirror_with_a_damaged_log_is_rebuilt(spark: SparkSession, lake: StoryLake, tmp_path: Path) -> None:
    """As docs/operations.md describes: move its folder away, and name the mirror to the rebuild."""
    table = Path(lake.paths.mirror(TableName("db", "bag")))
    _newest_commit(table).write_bytes(b"")
    shutil.move(table, tmp_path / "away")
    as_a_new_process(spark)
    maker = CutMaker(Lake(spark, lake.paths), "rebuild", "UTC", 2, lambda line: None)
    report = Rebuilder(maker).rebuild(["db.bag"])
    assert report.cut_id is not None
    lake.run()
    lake.assert_right()


def test_a_missing_data_file_is_reported(spark: SparkSession, lake: StoryLake, tmp_path: Path) -> None:
    table = Path(lake.paths.mirror(TableName("db", "bag")))
    file = next(table.glob("*.parquet"))
    shutil.move(file, tmp_path / "kept.parquet")
    as_a_new_process(spark)
    with pytest.raises((PySparkException, Py4JJavaError)) as caught:
        lake.run()
    fault = to_lake_error(caught.value)
    assert isinstance(fault, LakeError)
    assert file.name in str(fault)
    shutil.move(tmp_path / "kept.parquet", file)
    as_a_new_process(spark)
    lake.run()
    lake.assert_right()


def test_a_clock_that_jumps_back(spark: SparkSession, lake: StoryLake) -> None:
    """All existing files have tomorrow's date, as if the clock had been set back by a day."""
    tomorrow = time.time() + _DAY
    for file in Path(lake.paths.home).rglob("*"):
        os.utime(file, (tomorrow, tomorrow))
    as_a_new_process(spark)
    lake.run()
    lake.assert_right()
    Maintenance(("*",), compact=True, vacuum=True, keep_hours=168).run(Lake(spark, lake.paths), lambda line: None)
    lake.assert_right()
    cut = read_cut(spark, lake.paths.root, "shop", watermark_tso(FIRST))
    assert cut[TableName("db", "s1")].collect()[0]["v"] == "one"
