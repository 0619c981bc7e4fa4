"""Tables that the driver rewrites with Arrow and delta-rs, as Spark writes and reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from cdc_pipeline.errors import TransientError
from cdc_pipeline.lake import small_tables
from cdc_pipeline.lake.delta import (
    Commit,
    commit_metadata,
    committed_version,
    create_table,
    forget_cached_log,
    is_committed,
    row_count,
    table_state,
)
from cdc_pipeline.lake.delta_log import read_commit
from cdc_pipeline.lake.small_tables import open_small_table
from cdc_pipeline.lake.writes import append_once

_ROWS = """
SELECT id, if(id % 3 = 0, NULL, concat('ü', id)) AS text, CAST(id AS DECIMAL(38, 5)) / 7 AS number,
  TIMESTAMP_NTZ '1000-01-01 00:00:00.000001' + make_dt_interval(id) AS local, DATE '0001-01-01' + CAST(id AS INT) AS day,
  TIMESTAMP '1900-01-01 00:00:00.123456Z' + make_dt_interval(id) AS moment, unhex('00ff') AS bytes,
  CAST(id AS TINYINT) AS tiny, CAST(id AS SMALLINT) AS small, CAST(id AS INT) AS int,
  array(CAST(id AS FLOAT), CAST(-0.5 AS FLOAT)) AS vector, id % 2 = 0 AS flag, CAST(id AS DOUBLE) / 3 AS double
FROM range(40)
"""
_SETTINGS = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "3"}


def _commit(version: int) -> Commit:
    return Commit("cdc:shop:test", version, {"cut": version})


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql(_ROWS).coalesce(1)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path, rows: DataFrame) -> str:
    """A table of two files, written by the commits 1 to 3."""
    path = str(tmp_path / "a table")
    create_table(spark, path, _commit(1), schema=rows.schema, properties=_SETTINGS)
    append_once(rows.where("id < 20"), path, _commit(2))
    append_once(rows.where("id >= 20"), path, _commit(3))
    return path


def test_all_types_are_as_spark_has_them(spark: SparkSession, table: str, rows: DataFrame) -> None:
    """Before and after the driver has written them."""
    for version in (4, 5):
        small = open_small_table(table)
        assert small is not None
        assert small.count_rows() == row_count(spark, table) == 40
        assert small.count_rows("flag") == 20
        small.replace(small.rows, _commit(version))
        found = spark.read.format("delta").load(table)
        assert found.schema == rows.schema
        assert found.exceptAll(rows).isEmpty()
        assert rows.exceptAll(found).isEmpty()
    actions = read_commit(spark, table, 4)
    assert [next(iter(action)) for action in actions if "add" in action or "remove" in action].count("add") == 1
    assert next(a["commitInfo"] for a in actions if "commitInfo" in a)["userMetadata"] == '{"cut":5}'
    assert (committed_version(spark, table, "cdc:shop:test"), is_committed(spark, table, _commit(5))) == (5, True)


def test_a_commit_is_made_once(spark: SparkSession, table: str) -> None:
    small = open_small_table(table)
    assert small is not None
    for number in (4, 4, 3):
        small.replace(small.rows.slice(0, number), _commit(number))
    assert row_count(spark, table) == 4
    # without rows
    again = open_small_table(table)
    assert again is not None
    again.replace(again.rows.slice(0, 0), _commit(5))
    assert spark.read.format("delta").load(table).isEmpty()
    empty = open_small_table(table)
    assert empty is not None
    assert (len(empty.rows), empty.count_rows()) == (0, 0)


def test_an_error_after_the_commit_leaves_the_file(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a full disk when delta-rs writes a checkpoint."""
    commit = deltalake.DeltaTable.create_write_transaction

    def commit_and_fail(*args: Any, **options: Any) -> None:
        commit(*args, **options)
        raise OSError("no space left")

    small = open_small_table(table)
    assert small is not None
    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", commit_and_fail)
    with pytest.raises(OSError, match="no space"):
        small.replace(small.rows.slice(0, 3), _commit(4))
    found = open_small_table(table)
    assert found is not None
    assert len(found.rows) == 3


def test_deletion_vectors_and_columns_that_older_files_lack(spark: SparkSession, table: str) -> None:
    DeltaTable.forPath(spark, table).delete("id < 5")
    state = table_state(spark, table)
    assert state is not None
    commit_metadata(spark, table, _commit(4), schema=state.schema.add("later", "string"), properties={})
    small = open_small_table(table)
    assert small is not None
    assert (small.count_rows(), small.rows["later"].null_count) == (35, 35)
    small.replace(small.rows, _commit(5))
    assert sorted(row["id"] for row in spark.read.format("delta").load(table).collect()) == list(range(5, 40))


def test_spark_and_the_driver_write_in_turn(spark: SparkSession, table: str, rows: DataFrame) -> None:
    for version in range(4, 10, 2):
        small = open_small_table(table)
        assert small is not None
        small.replace(small.rows, _commit(version))
        append_once(rows.where("id = 7"), table, _commit(version + 1))
        state = table_state(spark, table)
        assert state is not None
        assert state.schema == rows.schema
    assert list(Path(table, "_delta_log").glob("*.checkpoint*.parquet"))
    forget_cached_log(spark, table)
    assert row_count(spark, table) == spark.read.format("delta").load(table).count() == 43


def test_changes_of_another_process_are_not_overwritten(spark: SparkSession, table: str, rows: DataFrame) -> None:
    small = open_small_table(table)
    assert small is not None
    found = small.rows
    append_once(rows.where("id = 7"), table, _commit(4))
    before = set(Path(table).iterdir())
    with pytest.raises(TransientError, match="another process has changed the table"):
        small.replace(found, _commit(5))
    assert set(Path(table).iterdir()) == before
    # a commit that changes no rows is not in the way
    small = open_small_table(table)
    assert small is not None
    commit_metadata(spark, table, _commit(5), properties={"cdc.gaps": "[]"})
    small.replace(small.rows.slice(0, 3), _commit(6))
    assert row_count(spark, table) == 3


@pytest.mark.parametrize(
    "properties",
    [
        {"delta.columnMapping.mode": "name"},
        {"delta.enableTypeWidening": "true"},
        {"delta.enableChangeDataFeed": "true"},
        {"delta.enableRowTracking": "true"},
    ],
    ids=str,
)
def test_features_that_only_spark_writes(spark: SparkSession, table: str, properties: dict[str, str]) -> None:
    commit_metadata(spark, table, _commit(4), properties=properties)
    assert open_small_table(table) is None


def test_large_tables(table: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert open_small_table(str(tmp_path / "none")) is None
    assert open_small_table("hdfs://host/table") is None
    for name, limit in (("MAX_BYTES", 1), ("_MAX_FILES", 1), ("_MAX_ROWS", 39)):
        with monkeypatch.context() as patched:
            patched.setattr(small_tables, name, limit)
            assert open_small_table(table) is None
    assert open_small_table(table) is not None
