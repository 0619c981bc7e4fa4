"""Which tables count as restored: RESTORE by version and time, under other commits, and undone."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import Commit, forget_cached_log
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.restored_tables import RestoredTableError, require_not_restored
from cdc_pipeline.lake.writes import append_once


def _append(spark: SparkSession, paths: LakePaths, version: int) -> None:
    commit = Commit(paths.app_id("batches"), version, {})
    append_once(spark.range(1).selectExpr(f"id + {version} AS id"), paths.table("batches"), commit)


@pytest.fixture
def table(spark: SparkSession, paths: LakePaths) -> DeltaTable:
    """A table with three commits, versions 0 to 2."""
    for version in (1, 2, 3):
        _append(spark, paths, version)
    return DeltaTable.forPath(spark, paths.table("batches"))


def _restored_from(spark: SparkSession, paths: LakePaths) -> str | None:
    """The version that the error says to restore; None if there is no error."""
    try:
        require_not_restored(Lake(spark, paths), *paths.own_tables)
    except RestoredTableError as error:
        message = str(error)
        assert message.startswith("batches was restored to an earlier version (RESTORE): ")
        assert message.endswith("[pipeline shop]")
        assert "shop_rebuild" not in message
        return message.split(" TO VERSION AS OF ")[1].split(",")[0]
    return None


def test_a_table_without_restore_passes(spark: SparkSession, paths: LakePaths, table: DeltaTable) -> None:
    assert _restored_from(spark, paths) is None
    table.delete("id = 1")
    assert _restored_from(spark, paths) is None


@pytest.mark.parametrize("by_time", [False, True])
def test_a_restored_table_is_rejected_until_the_restore_is_undone(
    spark: SparkSession, paths: LakePaths, table: DeltaTable, *, by_time: bool
) -> None:
    if by_time:
        time = table.history().where("version = 1").select("timestamp").collect()[0][0]
        table.restoreToTimestamp(f"{time:%Y-%m-%d %H:%M:%S.%f}")
    else:
        table.restoreToVersion(1)
    assert _restored_from(spark, paths) == "2"
    # commits of other writers do not hide it, and neither does another RESTORE
    table.delete("id = 1")
    table.restoreToVersion(0)
    table.optimize().executeCompaction()
    table.restoreToVersion(4)
    assert _restored_from(spark, paths) == "2"
    table.restoreToVersion(2)
    assert _restored_from(spark, paths) is None
    table.delete("id = 1")
    assert _restored_from(spark, paths) is None
    # a commit of the pipeline ends the search
    _append(spark, paths, 4)
    assert _restored_from(spark, paths) is None
    table.restoreToVersion(2)
    assert _restored_from(spark, paths) is not None


def test_restore_reverts_only_commits_of_others(spark: SparkSession, paths: LakePaths, table: DeltaTable) -> None:
    table.delete("id = 1")
    table.restoreToVersion(2)
    assert _restored_from(spark, paths) is None
    table.restoreToVersion(1)
    assert _restored_from(spark, paths) == "4"


def test_a_restore_to_a_removed_commit(spark: SparkSession, paths: LakePaths, table: DeltaTable) -> None:
    """Delta has removed the commits that a checkpoint covers, as after 30 days."""
    table.delete("id = 1")
    table.delete("id = 2")
    table.restoreToVersion(0)
    path = paths.table("batches")
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path).checkpoint()  # type: ignore[union-attr]
    for version in (0, 1, 2, 3):
        (Path(path) / "_delta_log" / f"{version:020}.json").unlink()
    forget_cached_log(spark, path)
    assert _restored_from(spark, paths) == "4"


@pytest.mark.parametrize("content", ["", "{", "\n"])
def test_damaged_commit_at_a_checkpoint_is_reported_as_damage(content: str, tmp_path: Path) -> None:
    """`require_intact_logs` does not read it, because the checkpoint covers it."""
    log = tmp_path / "lake" / "p" / "batches" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{1:020}.checkpoint.parquet").touch()
    (log / f"{1:020}.json").write_text(content, encoding="utf-8")
    paths = LakePaths(str(tmp_path / "lake"), "p")
    with pytest.raises(LakeError, match=r"batches is damaged: 0{19}1\.json is not a Delta commit"):
        require_not_restored(Lake(cast("SparkSession", None), paths), paths.table("batches"))
