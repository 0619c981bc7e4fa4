from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from cdc_pipeline.spark.folded import balanced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 4096])
def test_each_column_counts_once(count: int, spark: SparkSession) -> None:
    row = spark.range(1).select(balanced(operator.add, map(F.lit, range(1, count + 1)), F.lit(0)).alias("sum")).first()
    assert row is not None
    assert row["sum"] == sum(range(count + 1))
