"""kill -9 of whole runs with their JVM, at random moments. Afterwards the mirrors equal the source."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.runs import mirror_differences
from cdc_pipeline_tests.support.shop import CAPTURE, TABLES
from cdc_pipeline_tests.support.spark_settings import JVM_OPTIONS, write_defaults

pytestmark = pytest.mark.jvm

KILLS = 6


def _demo(paths: LakePaths, home: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "CDC_CAPTURES": str(CAPTURE), "CDC_LAKE": paths.root, "DAGSTER_HOME": str(home)}
    environment |= write_defaults(home / "spark", {"spark.driver.extraJavaOptions": JVM_OPTIONS})
    return subprocess.Popen(
        [sys.executable, "-m", "cdc_pipeline.cli.main", "run", "shop"],
        env=environment,
        cwd=Path(__file__).parents[2],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.long
def test_kill_9_at_random_moments(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    moments = random.Random(seed)
    (tmp_path / "home").mkdir()
    for _ in range(KILLS):
        run = _demo(paths, tmp_path / "home")
        time.sleep(moments.uniform(15, 60))
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    assert _demo(paths, tmp_path / "home").wait(timeout=600) == 0
    wrong = {
        table: found
        for table, truth in TABLES.items()
        if (found := mirror_differences(spark, paths, TableName(*table.split(".", 1)), truth["columns"], truth["rows"]))
    }
    assert wrong == {}
    assert spark.read.format("delta").load(paths.table("raw_topic_snapshot")).count() == 3448
