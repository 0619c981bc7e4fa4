"""DataFrames of driver rows: values are unchanged, and no Python worker starts."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, StructField, StructType

from cdc_pipeline.lake.delta import Commit, commit_session
from cdc_pipeline.spark.small_frames import MAX_SMALL_ROWS, SMALL_QUERY_ROWS, small_frame, small_query

_NOON = datetime(2026, 1, 2, 12, 0, 0, 123456, timezone.utc)
_CASES: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "plain": ("a BIGINT, b STRING, c BOOLEAN, d BINARY", [(2**62, "x'`\n\0😀", True, b"\xff\0"), (None,) * 4]),
    "structs in arrays": (
        "s ARRAY<STRUCT<`a.b`: STRING, n: INT>>",
        [([("x", 1), (None, None)],), ([],), (None,)],
    ),
    "arrays of arrays": ("s ARRAY<ARRAY<STRING>>", [([["a"], [], ["b", "c"]],)]),
    "maps": ("m MAP<STRING, ARRAY<STRING>>, n MAP<STRING, BIGINT>", [({"k": ["v"]}, {"": 0}), ({}, None)]),
    "structs": ("s STRUCT<a: INT, t: STRUCT<b: STRING>>", [((1, ("x",)),), (None,)]),
    "none": ("a INT", []),
}


@pytest.mark.parametrize("case", _CASES)
def test_what_goes_in_comes_out(case: str, spark: SparkSession) -> None:
    schema, rows = _CASES[case]
    frame = small_frame(spark, rows, schema)
    assert frame.schema == spark.createDataFrame([], schema).schema
    assert [_plain(row) for row in frame.collect()] == [_plain(row) for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return bytes(value) if isinstance(value, bytearray) else value


def test_an_instant_stays_one(spark: SparkSession) -> None:
    row = small_frame(spark, [(_NOON,)], "t TIMESTAMP").selectExpr("unix_micros(t) AS us").first()
    assert row is not None
    assert row["us"] == int(_NOON.timestamp()) * 1_000_000 + 123456


def test_rows_are_in_the_plan_itself(spark: SparkSession) -> None:
    plan = small_frame(spark, [(1,)], StructType([StructField("a", IntegerType())]))
    assert "LocalTableScan" in plan._jdf.queryExecution().executedPlan().toString()


@pytest.mark.parametrize("row", [("x", 1), ("x",), (1, 2, 3)])
def test_a_value_of_another_type_is_refused(row: tuple[Any, ...], spark: SparkSession) -> None:
    with pytest.raises((ValueError, TypeError)):
        small_frame(spark, [row], "a INT, b INT")


_USUAL = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": "7",
}


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """A session with its own settings that compiles its queries."""
    own = spark.newSession()
    for name, value in _USUAL.items():
        own.conf.set(name, value)
    return own


def _is_compiled(session: SparkSession) -> bool:
    plan = session.range(10).selectExpr("id + 1 AS n")._jdf.queryExecution().executedPlan().toString()
    return "*(1)" in plan


def _limit(session: SparkSession) -> int:
    return int(str(session.conf.get(SMALL_QUERY_ROWS, str(MAX_SMALL_ROWS))))


def test_queries_over_few_rows_are_interpreted(session: SparkSession) -> None:
    assert _is_compiled(session)
    with small_query(session, _limit(session)):
        assert not _is_compiled(session)
    assert _is_compiled(session)
    assert {name: session.conf.get(name) for name in _USUAL} == _USUAL


def test_an_error_leaves_the_session_as_it_was(session: SparkSession) -> None:
    with suppress(KeyError), small_query(session, 0):
        raise KeyError
    assert _is_compiled(session)


def test_queries_over_many_rows_are_compiled(session: SparkSession) -> None:
    with small_query(session, _limit(session) + 1):
        assert _is_compiled(session)


def test_a_commit_on_few_rows_is_interpreted(spark: SparkSession) -> None:
    assert not _is_compiled(commit_session(spark, Commit("a", 1, {}), small=True))
