"""Appends by Delta's own transaction, and by `df.write` where it does not do."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from packaging.version import Version
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.lake import writes
from cdc_pipeline.lake.delta import Commit, committed_version, is_conflict, own_rows, table_state
from cdc_pipeline.lake.delta_log import read_commit
from cdc_pipeline.lake.writes import append_if, append_once
from cdc_pipeline.spark.jvm import finished_metrics

_APP = "cdc:shop:test"
_TRANSACTION = pytest.mark.skipif(
    Version(version("delta-spark")) < Version("4.4"), reason="appends by df.write: Delta 4.2 has no such transaction"
)


def _commit(version: int, app: str = _APP) -> Commit:
    return Commit(app, version, {"batch": version})


def _frame(spark: SparkSession, *rows: tuple[int, str]) -> DataFrame:
    return spark.createDataFrame(list(rows), "id INT, name STRING")


def _rows(spark: SparkSession, path: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.read.format("delta").load(path).collect())


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> str:
    """A table `id, name` with one row, written by commit 1."""
    path = str(tmp_path / "t")
    append_once(_frame(spark, (1, "a")), path, _commit(1))
    return path


def _refuse_df_write(*_: object) -> None:
    raise AssertionError("df.write")


@_TRANSACTION
def test_the_commit_is_that_of_df_write(table: str, spark: SparkSession) -> None:
    """With the pair, the note, the columns in another order, statistics, observed metrics and the numbers of its history."""
    observation, frame = Observation(), _frame(spark, (2, "b"), (3, "c")).select("name", "id").coalesce(1)
    with patch.object(writes, "_writer", _refuse_df_write):
        append_once(frame.observe(observation, F.count("*").alias("rows")), table, _commit(2))
        append_once(frame, table, _commit(2))
        append_once(frame, table, _commit(1))
    assert _rows(spark, table) == [(1, "a"), (2, "b"), (3, "c")]
    assert finished_metrics(observation) == {"rows": 2}
    assert (committed_version(spark, table, _APP), own_rows(spark, table, _commit(2))) == (2, 2)
    own, other = (_actions(spark, table, version) for version in (1, 0))
    assert own["commitInfo"]["operation"] == other["commitInfo"]["operation"] == "WRITE"
    assert own["commitInfo"]["operationParameters"] == other["commitInfo"]["operationParameters"] | {"mode": "Append"}
    assert own["commitInfo"]["operationMetrics"].keys() == other["commitInfo"]["operationMetrics"].keys()
    assert own["commitInfo"]["operationMetrics"]["numOutputRows"] == "2"
    assert own["commitInfo"]["isBlindAppend"] is True
    assert own["commitInfo"]["userMetadata"] == '{"batch":2}'
    assert own["txn"] == own["txn"] | {"appId": _APP, "version": 2}
    assert json.loads(own["add"]["stats"]).items() >= {"numRecords": 2, "nullCount": {"id": 0, "name": 0}}.items()


def _actions(spark: SparkSession, path: str, version: int) -> dict[str, Any]:
    return {name: value for action in read_commit(spark, path, version) for name, value in action.items()}


@_TRANSACTION
def test_rows_that_are_not_accepted_are_not_committed(table: str, spark: SparkSession) -> None:
    before = table_state(spark, table)
    assert not append_if(_frame(spark, (2, "b")), table, _commit(2), lambda: False)
    assert table_state(spark, table) == before
    assert _rows(spark, table) == [(1, "a")]
    assert append_if(_frame(spark, (2, "b")), table, _commit(2), lambda: True)
    assert _rows(spark, table) == [(1, "a"), (2, "b")]


def test_other_columns_are_those_of_df_write(table: str, spark: SparkSession, tmp_path: Path) -> None:
    """A missing table, and a new column if the options permit it."""
    wider = _frame(spark, (2, "b")).withColumn("n", F.lit(5))
    assert not append_if(wider, table, _commit(2))
    assert not append_if(wider, str(tmp_path / "none"), _commit(2))
    assert not (tmp_path / "none").exists()
    append_once(wider, table, _commit(2), mergeSchema="true")
    assert _rows(spark, table) == [(1, "a", None), (2, "b", 5)]


def test_a_delta_without_these_calls_writes_as_before(
    table: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = writes.log_names(spark)

    class Changed:
        def __getattr__(self, name: str) -> Any:
            return spark._jvm.of.another.version if name == "write" else getattr(names, name)  # type: ignore[union-attr]

    monkeypatch.setattr(writes, "log_names", lambda _: Changed())
    append_once(_frame(spark, (2, "b")), table, _commit(2))
    assert _rows(spark, table) == [(1, "a"), (2, "b")]
    assert committed_version(spark, table, _APP) == 2


def _with_another_commit(spark: SparkSession, path: str, commit: Commit) -> Callable[[], bool]:
    """Another process commits between the write and the commit."""

    def accept() -> bool:
        append_once(_frame(spark, (9, "other")), path, commit)
        return True

    return accept


@_TRANSACTION
def test_two_writers(table: str, spark: SparkSession) -> None:
    """Another writer's append is no conflict. The same version of the same writer is, so that its rows are there once."""
    another = _with_another_commit(spark, table, _commit(1, app="cdc:shop:other"))
    assert append_if(_frame(spark, (2, "b")), table, _commit(2), another)
    with pytest.raises(Exception, match="ConcurrentTransaction") as caught:
        append_if(_frame(spark, (3, "c")), table, _commit(3), _with_another_commit(spark, table, _commit(3)))
    assert is_conflict(caught.value)
    assert _rows(spark, table) == [(1, "a"), (2, "b"), (9, "other"), (9, "other")]
