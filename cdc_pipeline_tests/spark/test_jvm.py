"""The end of the JVM during a query: what a step reports, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

_RUN = """
import os, signal, sys, threading
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
process = SparkContext._gateway.proc
if sys.argv[1] == "kill":
    threading.Timer(2, process.kill).start()
    report("SELECT sum(id * 3 % 7) FROM range(1000000000000)")
else:
    report("SELECT length(concat(repeat('x', 400000000 + cast(id AS INT)), repeat('x', 400000000))) FROM range(1)")
    process.wait()
report("SELECT 1 FROM range(3)")
"""
_KILLED = "Spark ended or ran out of memory: exit code -9 "
_EXPECTED = {"kill": (_KILLED, _KILLED), "memory": ("java.lang.OutOfMemoryError: ", _KILLED.replace("-9", "52"))}


@pytest.mark.jvm
@pytest.mark.parametrize("end", _EXPECTED)
def test_the_end_of_the_jvm_is_reported_with_what_to_do(end: str) -> None:
    run = subprocess.run([sys.executable, "-c", _RUN, end], capture_output=True, text=True, timeout=600)
    reported = [line for line in run.stdout.splitlines() if line.startswith("reported: ")]
    assert len(reported) == 2, run.stderr
    for line, said in zip(reported, _EXPECTED[end], strict=True):
        assert [part for part in (said, "the next run continues", "CDC_DRIVER_MEMORY") if part not in line] == []
    assert "Traceback" not in run.stderr
