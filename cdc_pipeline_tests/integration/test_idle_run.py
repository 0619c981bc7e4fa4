"""Runs without new records, in a process of their own: they start Spark's session at its first use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.dialects.decoded_tables import decode_batches
from cdc_pipeline.lake.format import store_format
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.sources.capture_files.source import ingest_new_files
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.story_lake import begun
from cdc_pipeline_tests.support.messages import Topic, ddl, row, watermark
from cdc_pipeline_tests.support.tiers import NO_JAVA


def _run(folder: Path, **environment: str) -> str:
    """What `cdc-pipeline run` prints about the pipeline `shop` in `folder`."""
    command = [sys.executable, "-m", "cdc_pipeline.cli.main", "run", "shop"]
    options = ["--captures", str(folder / "captures"), "--lake", str(folder / "lake")]
    found = subprocess.run(
        [*command, *options], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def test_it_needs_no_java(spark: SparkSession, tmp_path: Path) -> None:
    begun(spark, tmp_path).run()
    assert "no new records: the mirrors did not change" in _run(tmp_path, JAVA_HOME=NO_JAVA)


def test_dead_letters_and_pending_rows_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    topic = Topic()
    topic.send(ddl("CREATE TABLE x (id INT PRIMARY KEY)", 1, table="x", kind="CREATE"))
    topic.send("no message")
    topic.send(watermark(2))
    topic.send(row("INSERT", "x", 3, {"id": "1"}, types={"id": "int"}, key=["id"]))
    topic.write(tmp_path / "captures", "1.jsonl")
    ingest(spark, LakePaths(str(tmp_path / "lake"), "shop"), tmp_path / "captures")
    # the batch has a cut, the next one has none
    topic.send(row("INSERT", "x", 3, {"id": "2"}, types={"id": "int"}, key=["id"]))
    topic.write(tmp_path / "captures", "2.jsonl")
    ingest(spark, LakePaths(str(tmp_path / "lake"), "shop"), tmp_path / "captures")
    found = _run(tmp_path)
    assert "2 row changes are pending" in found
    assert "value_is_json_object: 1" in found


@pytest.mark.parametrize("is_decoded", [False, True])
def test_it_goes_on_where_a_run_has_died(spark: SparkSession, tmp_path: Path, is_decoded: bool) -> None:
    topic = Topic()
    topic.send(ddl("CREATE TABLE x (id INT PRIMARY KEY)", 1, table="x", kind="CREATE"))
    topic.send(row("INSERT", "x", 3, {"id": "1"}, types={"id": "int"}, key=["id"]))
    topic.send(watermark(4))
    topic.write(tmp_path / "captures", "1.jsonl")
    lake = Lake(spark, LakePaths(str(tmp_path / "lake"), "shop"))
    ingest_new_files(lake, str(tmp_path / "captures"), "died")
    store_format(lake)
    if is_decoded:
        decode_batches(lake)
    _run(tmp_path)
    assert spark.read.format("delta").load(lake.paths.mirror(TableName("db", "x"))).count() == 1
