"""A run without new records reads the local lake without Spark, so it starts no JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from cdc_pipeline_tests.support.lakes.story_lake import begun
from cdc_pipeline_tests.support.tiers import NO_JAVA


def test_it_needs_no_java(spark: SparkSession, tmp_path: Path) -> None:
    lake = begun(spark, tmp_path)
    lake.run()
    command = [sys.executable, "-m", "cdc_pipeline.cli.main", "run", "shop"]
    options = ["--captures", str(tmp_path / "captures"), "--lake", lake.paths.root]
    environment = {**os.environ, "JAVA_HOME": NO_JAVA}
    found = subprocess.run([*command, *options], env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "no new records: the mirrors did not change" in found.stdout
