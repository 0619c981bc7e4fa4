"""A query with another bound runs the code that was generated for the first one."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from cdc_pipeline.spark.generated_code import is_at_most

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, SparkSession

_BOUNDS = (2, 1 << 60, -5)


def _compiled_classes(spark: SparkSession, condition: Callable[[int], Column]) -> list[int]:
    """How many classes the query of each bound compiled."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    times = jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    session, counts = spark.newSession(), [times.getCount()]
    session.conf.set("spark.sql.codegen.wholeStage", "true")
    session.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    session.conf.set("spark.sql.adaptive.enabled", "false")
    for bound in _BOUNDS:
        session.range(10).where(condition(bound)).select(F.hash("id")).collect()
        counts.append(times.getCount())
    return [later - earlier for earlier, later in itertools.pairwise(counts)]


def test_a_bound_is_not_compiled(spark: SparkSession) -> None:
    assert _compiled_classes(spark, lambda bound: is_at_most("id", bound))[1:] == [0, 0]
    assert 0 not in _compiled_classes(spark, lambda bound: F.col("id") <= bound)  # the test can fail


@pytest.mark.parametrize("bound", _BOUNDS)
def test_values(spark: SparkSession, bound: int) -> None:
    values = [None, -(1 << 63), -5, -4, 0, 2, 3, (1 << 60) + 1]
    rows = (
        spark.createDataFrame([(value,) for value in values], "n BIGINT").select("n", is_at_most("n", bound)).collect()
    )
    assert [row[1] for row in rows] == [None if value is None else value <= bound for value in values]
