"""Control tables with delta-rs in local folders, and with Spark elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake import control_tables
from cdc_pipeline.lake.control_tables import (
    append_rows,
    compact_rows,
    is_empty,
    newest_version,
    overwrite_rows,
    read_maxima,
    read_rows,
    read_sums,
)
from cdc_pipeline.lake.delta import Commit, committed_version, forget_cached_log, table_state
from cdc_pipeline.lake.file_statistics import Condition
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.writes import append_once
from cdc_pipeline.spark.small_frames import small_frame, small_table

_TABLE = "batches"
_APP = "cdc:p:batches"
_SCHEMA = (
    "id BIGINT, name STRING, at TIMESTAMP, spans ARRAY<STRUCT<topic: STRING, first: BIGINT>>, "
    "counts MAP<STRING, BIGINT>"
)


@pytest.fixture(params=["by delta-rs: ä b", "by Spark: a URI", "by Spark: a%20[b"])
def lake(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Lake:
    """A lake in a local folder, the folder as a URI, and a folder whose name delta-rs would change."""
    if request.param.endswith("URI"):
        return Lake(spark, LakePaths(f"file:{tmp_path}", "p"))
    return Lake(spark, LakePaths(str(tmp_path / request.param.partition(": ")[2]), "p"))


def _row(number: int, name: str = "a") -> tuple[Any, ...]:
    return (number, name, None, [(name, number)], {name: number})


def _rows(*numbers: int, name: str = "a") -> pa.Table:
    return small_table([_row(number, name) for number in numbers], _SCHEMA)


def _commit(version: int, app: str = _APP, **note: object) -> Commit:
    return Commit(app, version, note)


def _ids(lake: Lake, *where: Condition) -> list[int]:
    return sorted(row["id"] for row in read_rows(lake, _TABLE, *where, columns=["id"]))


def test_no_table(lake: Lake) -> None:
    assert (read_rows(lake, _TABLE), newest_version(lake, _TABLE, _APP), lake.exists(_TABLE)) == ([], None, False)
    assert read_maxima(lake, _TABLE, ("name",), "id") == {}
    assert read_sums(lake, _TABLE, columns=["id"]) == {"id": 0}
    assert is_empty(lake, _TABLE)
    compact_rows(lake, _TABLE)


def test_each_commit_is_appended_once(lake: Lake) -> None:
    """Skips the same version and a lower one. Each writer has its own versions."""
    append_rows(lake, _TABLE, _rows(1, 2), _commit(0, batch=5, text="é"))
    append_rows(lake, _TABLE, _rows(3), _commit(0))
    append_rows(lake, _TABLE, _rows(4), _commit(6))
    append_rows(lake, _TABLE, _rows(5), _commit(5))
    append_rows(lake, _TABLE, _rows(6), _commit(6, app="cdc:p:other"))
    assert _ids(lake) == [1, 2, 4, 6]
    assert [newest_version(lake, _TABLE, app) for app in (_APP, "cdc:p:other", "none")] == [6, 6, None]
    assert committed_version(lake.spark, lake.paths.table(_TABLE), _APP) == 6
    history = DeltaTable.forPath(lake.spark, lake.paths.table(_TABLE)).history().orderBy("version")
    assert json.loads(history.select("userMetadata").collect()[0][0]) == {"batch": 5, "text": "é"}


def test_rows_are_replaced_once(lake: Lake) -> None:
    overwrite_rows(lake, _TABLE, _rows(1, 2), _commit(1))
    overwrite_rows(lake, _TABLE, small_table([(7, "x")], "id BIGINT, other STRING"), _commit(2))
    overwrite_rows(lake, _TABLE, _rows(8), _commit(2))
    assert read_rows(lake, _TABLE) == [{"id": 7, "other": "x"}]


def test_conditions_and_values(lake: Lake) -> None:
    append_rows(lake, _TABLE, _rows(1, 2), _commit(1))
    append_rows(lake, _TABLE, _rows(3, name="b"), _commit(2))
    assert not is_empty(lake, _TABLE)
    assert [_ids(lake, ("id", name, 2)) for name in ("=", ">", ">=", "<=")] == [[2], [3], [2, 3], [1, 2]]  # type: ignore[arg-type]
    assert _ids(lake, ("id", ">", 1), ("name", "=", "a")) == [2]
    assert read_rows(lake, _TABLE, ("id", "=", 3)) == [
        {"id": 3, "name": "b", "at": None, "spans": [{"topic": "b", "first": 3}], "counts": {"b": 3}}
    ]
    assert read_maxima(lake, _TABLE, ("name",), "id", ("id", ">=", 2)) == {("a",): 2, ("b",): 3}


def test_the_state_is_that_of_spark(lake: Lake) -> None:
    assert lake.state(_TABLE) is None
    append_rows(lake, _TABLE, _rows(1), _commit(1))
    append_rows(lake, _TABLE, _rows(2), _commit(2))
    found = lake.state(_TABLE)
    assert found is not None
    assert found == table_state(lake.spark, lake.paths.table(_TABLE), found.version)
    assert found.version == 1


def test_a_table_that_takes_the_place_of_another(lake: Lake) -> None:
    """Such as one that a rebuild has moved there: the thread's handle of the former table is not used."""
    for number in range(1, 4):
        append_rows(lake, _TABLE, _rows(number), _commit(number))
        assert len(_ids(lake)) == number
    folder = lake.paths.table(_TABLE).removeprefix("file:")
    for count in (3, 2):
        shutil.rmtree(folder)
        forget_cached_log(lake.spark, lake.paths.table(_TABLE))
        for number in range(10, 10 + count):
            append_rows(lake, _TABLE, _rows(number), _commit(number))
        assert _ids(lake) == list(range(10, 10 + count))
        assert newest_version(lake, _TABLE, _commit(1).app_id) == 9 + count


def test_a_table_without_rows_exists(lake: Lake) -> None:
    append_rows(lake, _TABLE, _rows(), _commit(1))
    assert is_empty(lake, _TABLE)
    assert (lake.exists(_TABLE), read_rows(lake, _TABLE)) == (True, [])
    conditions: list[Condition] = [("id", "=", 1), ("id", ">", 1), ("name", "=", "a"), ("spans", "longer than", 0)]
    assert [_ids(lake, condition) for condition in conditions] == [[], [], [], []]
    assert _ids(lake, *conditions) == []


def test_sums_and_lengths(lake: Lake) -> None:
    append_rows(lake, _TABLE, _rows(1, 2), _commit(1))
    without = small_table([(5, None, None, [], None), (None, "b", None, None, None)], _SCHEMA)
    append_rows(lake, _TABLE, without, _commit(2))
    assert read_sums(lake, _TABLE, columns=["id"]) == {"id": 8}
    assert read_sums(lake, _TABLE, ("id", ">", 1), ("spans", "longer than", 0), columns=["id"]) == {"id": 2}
    assert read_sums(lake, _TABLE, ("id", ">", 9), columns=["id"]) == {"id": 0}
    assert _ids(lake, ("spans", "longer than", 0)) == [1, 2]


def test_a_thousand_commits_leave_few_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the log says when a file was replaced, so that a test cannot make it a day ago
    monkeypatch.setitem(control_tables._NEW_TABLE, "delta.deletedFileRetentionDuration", "interval 0 seconds")
    lake = Lake(spark, LakePaths(str(tmp_path), "p"))
    table = Path(lake.paths.table(_TABLE))
    for number in range(1, 1001):
        append_rows(lake, _TABLE, _rows(number), _commit(number, batch=number))
        if number % 100 == 0:
            assert compact_rows(lake, _TABLE)
            _age_by_two_days(table)
    append_rows(lake, _TABLE, _rows(1000), _commit(1000))
    # commits and files of the last hundred, and what later checkpoints and VACUUM have not removed yet
    assert len(list((table / "_delta_log").glob("*.json"))) < 250
    assert len(list(table.glob("*.parquet"))) < 250
    assert _ids(lake) == list(range(1, 1001))
    assert lake.read(_TABLE).where("id > 990").count() == 10
    assert lake.read(_TABLE).inputFiles() == lake.read(_TABLE).where("id > 0").inputFiles()
    assert len(lake.read(_TABLE).inputFiles()) <= 2


def _age_by_two_days(table: Path) -> None:
    for file in (table / "_delta_log").glob("0*"):
        moment = file.stat().st_mtime - 2 * 86_400
        os.utime(file, (moment, moment))


def test_spark_and_delta_rs_share_a_table(spark: SparkSession, tmp_path: Path) -> None:
    """As when a rebuild replaces a table with Spark."""
    lake = Lake(spark, LakePaths(str(tmp_path), "p"))
    path = lake.paths.table(_TABLE)
    append_once(small_frame(spark, [_row(1)], _SCHEMA), path, _commit(1))
    append_rows(lake, _TABLE, _rows(2), _commit(2))
    append_once(small_frame(spark, [_row(3)], _SCHEMA), path, _commit(2))
    append_once(small_frame(spark, [_row(4)], _SCHEMA), path, _commit(3))
    append_rows(lake, _TABLE, _rows(5), _commit(3))
    assert _ids(lake) == sorted(row["id"] for row in lake.read(_TABLE).collect()) == [1, 2, 4]
    assert lake.read(_TABLE).schema == small_frame(spark, [], _SCHEMA).schema


def test_two_processes_append_the_same_commit(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, LakePaths(str(tmp_path), "p"))
    append_rows(lake, _TABLE, _rows(0), _commit(0))
    barrier = threading.Barrier(8)

    def append(number: int) -> None:
        barrier.wait()
        append_rows(lake, _TABLE, _rows(number), _commit(1))
        append_rows(lake, _TABLE, _rows(100 + number), _commit(1, app=f"cdc:p:{number}"))

    threads = [threading.Thread(target=append, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = _ids(lake)
    assert len([number for number in ids if number < 100]) == 2
    assert [number for number in ids if number >= 100] == list(range(100, 108))


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_a_damaged_file_is_named(damage: str, spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, LakePaths(str(tmp_path), "p"))
    append_rows(lake, _TABLE, _rows(1), _commit(1))
    (file,) = Path(lake.paths.table(_TABLE)).glob("*.parquet")
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(LakeError, match=r"/p/batches is damaged or missing: .*\.parquet.* Nothing was repaired"):
        read_rows(lake, _TABLE)
