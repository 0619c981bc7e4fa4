"""Settings for small queries apply only within the context and only to few rows."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from cdc_pipeline.lake.delta import Commit, commit_session
from cdc_pipeline.spark.few_rows import MAX_SMALL_ROWS, small_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def test_queries_over_few_rows_are_interpreted(session: SparkSession) -> None:
    assert _is_compiled(session)
    with small_query(session, MAX_SMALL_ROWS):
        assert not _is_compiled(session)
    assert _is_compiled(session)
    assert {name: session.conf.get(name) for name in _USUAL} == _USUAL


def test_an_error_leaves_the_session_as_it_was(session: SparkSession) -> None:
    with suppress(KeyError), small_query(session, 0):
        raise KeyError
    assert _is_compiled(session)


def test_queries_over_many_rows_are_compiled(session: SparkSession) -> None:
    with small_query(session, MAX_SMALL_ROWS + 1):
        assert _is_compiled(session)


def test_a_commit_on_few_rows_is_interpreted(spark: SparkSession) -> None:
    assert not _is_compiled(commit_session(spark, Commit("a", 1, {}), small=True))
