"""`Lake.read_batches` returns what a query on the whole table returns, from fewer files."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlparse

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.spark.small_frames import small_frame

_TABLE = "change_log"
_COLUMNS = "batch_id BIGINT, commit_ts BIGINT, es BIGINT, text STRING, image MAP<STRING, STRING>"
_BATCHES = {
    1: [(1, 10, 1, "a", {"x": None}), (1, 40, 4, "b", None)],
    2: [(2, 20, 2, "c", {})],
    3: [(3, None, 3, "d", {"ä": "1"})],
    4: [(4, 5, 9, "e", None), (4, None, None, None, None)],
}


@pytest.fixture(params=["local: ä b", "only Spark's: a%20[b"])
def lake(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Lake:
    """A folder that delta-rs can read, and one that it cannot."""
    return _lake(spark, tmp_path / request.param.partition(": ")[2])


@pytest.fixture
def local(spark: SparkSession, tmp_path: Path) -> Lake:
    """As `lake`, in the first folder only."""
    return _lake(spark, tmp_path / "local")


def _lake(spark: SparkSession, folder: Path) -> Lake:
    """A table with a commit per batch."""
    lake = Lake(spark, LakePaths(str(folder), "p"))
    for rows in _BATCHES.values():
        _append(lake, rows)
    return lake


def _append(lake: Lake, rows: list[tuple[object, ...]]) -> None:
    frame = small_frame(lake.spark, rows, _COLUMNS)
    frame.coalesce(1).write.format("delta").mode("append").save(lake.paths.table(_TABLE))


def _table(lake: Lake) -> DeltaTable:
    return DeltaTable.forPath(lake.spark, lake.paths.table(_TABLE))


def _texts(lake: Lake, first: int, last: int, **above: int) -> list[str | None]:
    rows = lake.read_batches(_TABLE, first, last, above).collect()
    return sorted((row["text"] for row in rows), key=str)


def _file_count(lake: Lake, first: int, last: int, **above: int) -> int:
    return len(lake.read_batches(_TABLE, first, last, above).inputFiles())


def test_rows_of_some_batches(lake: Lake) -> None:
    assert lake.read_batches(_TABLE, 0, 9).schema == lake.read(_TABLE).schema
    expected = {tuple(map(str, row)) for batch in (2, 3, 4) for row in _BATCHES[batch]}
    assert {tuple(map(str, row)) for row in lake.read_batches(_TABLE, 2, 4).collect()} == expected
    assert _texts(lake, 2, 2) == ["c"]
    assert _texts(lake, 5, 7) == []


def test_only_files_of_the_batches_are_read(local: Lake) -> None:
    assert [_file_count(local, *span) for span in ((2, 2), (2, 3), (0, 9))] == [1, 2, 4]


def test_files_without_higher_values_are_left_out(local: Lake) -> None:
    """Batch 3 has no `commit_ts`: without a maximum its file may have higher values."""
    assert _texts(local, 0, 9, commit_ts=20) == ["a", "b", "d"]
    assert _texts(local, 0, 9, commit_ts=20, es=8) == [None, "a", "b", "d", "e"]
    assert _file_count(local, 0, 9, commit_ts=20) == 2
    assert (_texts(local, 1, 2, commit_ts=40), _file_count(local, 1, 2, commit_ts=40)) == ([], 0)


def test_delta_leaves_out_files_too(spark: SparkSession, tmp_path: Path) -> None:
    """In a folder that delta-rs cannot read."""
    lake = _lake(spark, tmp_path / "a%20[b")
    assert _texts(lake, 0, 9, commit_ts=20) == ["b"]
    assert _texts(lake, 0, 9, commit_ts=20, es=8) == ["b", "e"]
    assert _file_count(lake, 0, 9, es=8) == 1


def test_files_of_several_batches(lake: Lake) -> None:
    _table(lake).optimize().executeCompaction()
    assert _texts(lake, 2, 3) == ["c", "d"]


def test_deleted_rows_stay_deleted(lake: Lake) -> None:
    """A deletion vector leaves the row in its file."""
    lake.spark.sql(
        f"ALTER TABLE delta.`{lake.paths.table(_TABLE)}` SET TBLPROPERTIES (delta.enableDeletionVectors = true)"
    )
    _table(lake).delete("text = 'a'")
    assert _texts(lake, 1, 2) == ["b", "c"]


def test_columns_added_later(lake: Lake) -> None:
    lake.spark.sql(f"ALTER TABLE delta.`{lake.paths.table(_TABLE)}` ADD COLUMNS (more STRING)")
    assert [row["more"] for row in lake.read_batches(_TABLE, 1, 2).collect()] == [None] * 3


def test_files_without_statistics(lake: Lake) -> None:
    lake.spark.sql(
        f"ALTER TABLE delta.`{lake.paths.table(_TABLE)}` SET TBLPROPERTIES (delta.dataSkippingNumIndexedCols = 0)"
    )
    _append(lake, [(5, 50, 5, "f", None), (6, 60, 6, "g", None)])
    assert _texts(lake, 5, 5) == ["f"]
    assert "f" in _texts(lake, 0, 9, commit_ts=49)


def test_more_files_than_spark_lists_without_a_job(local: Lake) -> None:
    frame = small_frame(local.spark, [(7, n, n, str(n), None) for n in range(40)], _COLUMNS)
    frame.repartition(40, "commit_ts").write.format("delta").mode("append").save(local.paths.table(_TABLE))
    assert len(_texts(local, 7, 7)) == 40


def test_a_missing_file_is_an_error(local: Lake) -> None:
    """Not a table without its rows."""
    (name,) = local.read_batches(_TABLE, 2, 2).inputFiles()
    Path(urlparse(name).path).unlink()
    with pytest.raises(Exception, match="FAILED_READ_FILE"):
        local.read_batches(_TABLE, 2, 2).collect()
