"""The end of the JVM during a query: what a step reports, in a process of its own."""

from __future__ import annotations

import operator
import subprocess
import sys
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.spark.jvm import balanced, has_started, started_later

_RUN = """
import threading
import dagster as dg
from pyspark import SparkContext
from cdc_pipeline.assets.failures import translate_errors
from cdc_pipeline.spark.session import SparkLakehouse

def report(query):
    try:
        with translate_errors():
            spark.sql(query).collect()
    except dg.Failure as failure:
        print("reported:", failure.description)

spark = SparkLakehouse(master="local[1]", driver_memory="512m").start(short_lived=True)
threading.Timer(2, SparkContext._gateway.proc.kill).start()
report("SELECT sum(id * 3 % 7) FROM range(1000000000000)")
report("SELECT 1 FROM range(3)")
"""


def test_a_session_starts_at_its_first_use() -> None:
    real, starts = Mock(version="4.0"), []
    later = started_later(lambda: starts.append(1) or real)  # type: ignore[func-returns-value]
    assert isinstance(later, SparkSession)
    assert not has_started(later)
    assert (later.version, later.version, starts) == ("4.0", "4.0", [1])
    assert has_started(later)
    assert has_started(real)


@pytest.mark.jvm
def test_the_end_of_the_jvm_is_reported_with_what_to_do() -> None:
    run = subprocess.run([sys.executable, "-c", _RUN], capture_output=True, text=True, timeout=600)
    reported = [line for line in run.stdout.splitlines() if line.startswith("reported: ")]
    assert len(reported) == 2, run.stderr
    for line in reported:
        assert line.startswith("reported: Spark ended or ran out of memory: exit code -9 ")
        assert "the next run continues" in line
        assert "CDC_DRIVER_MEMORY" in line
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 4096])
def test_each_column_counts_once(count: int, spark: SparkSession) -> None:
    row = spark.range(1).select(balanced(operator.add, map(F.lit, range(1, count + 1)), F.lit(0)).alias("sum")).first()
    assert row is not None
    assert row["sum"] == sum(range(count + 1))
