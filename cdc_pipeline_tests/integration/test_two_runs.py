"""Two parallel runs of one pipeline: with the lock one waits for the other; without it the lake is still correct."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.definitions import defs
from cdc_pipeline.lake import lock
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.lock import writer_lock
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.spark.threads import map_in_threads
from cdc_pipeline_tests.support.lakes.ingested_stories import PARTITIONS, assert_ingested
from cdc_pipeline_tests.support.lakes.kills import SHORT
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.runs import environment, run_ingest
from cdc_pipeline_tests.support.lakes.stories import STORIES
from cdc_pipeline_tests.support.messages import Topic, watermark


def _write_captures(folder: Path) -> None:
    topic = Topic()
    for name in SHORT:
        for payload, partition in STORIES[name].messages:
            topic.send(payload, partition)
    for partition in PARTITIONS:
        topic.send(watermark(1000), partition)
    topic.write(folder, "all.jsonl")


def _assert_correct(spark: SparkSession, paths: LakePaths) -> None:
    for name in SHORT:
        assert_ingested(spark, paths, STORIES[name])
    sent = sum(len(STORIES[name].messages) for name in SHORT) + len(PARTITIONS)
    assert spark.read.format("delta").load(paths.table("raw_topic_snapshot")).count() == sent
    assert spark.read.format("delta").load(paths.table("consistent_cuts")).count() == 1
    assert lake_balance(Lake(spark, paths)).is_balanced


@pytest.mark.core(2, 9)
def test_a_run_waits_for_another_and_a_rebuild_finds_all_equal(
    spark: SparkSession,
    paths: LakePaths,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _write_captures(tmp_path / "captures")
    locked, release = threading.Event(), threading.Event()
    read_holder = lock._read_holder

    def read_and_release(descriptor: int) -> str:
        holder = read_holder(descriptor)
        release.set()
        return holder

    monkeypatch.setattr(lock, "_read_holder", read_and_release)

    def other_run() -> None:
        with writer_lock(paths, "the-other-run", lambda line: None):
            locked.set()
            release.wait(300)

    other = threading.Thread(target=other_run)
    other.start()
    assert locked.wait(10)
    result = run_ingest(tmp_path / "captures", Path(paths.root), log_level="INFO")
    other.join()
    assert result.success
    assert "waiting: run the-other-run" in capfd.readouterr().err
    _assert_correct(spark, paths)

    with environment(tmp_path / "captures", Path(paths.root)), dg.DagsterInstance.ephemeral() as instance:
        rebuilt = defs().resolve_job_def("shop_rebuild").execute_in_process(instance=instance)
    output = rebuilt.filter_events(lambda event: event.is_successful_output)[0].step_output_data.metadata
    assert output["equal"].value is True
    _assert_correct(spark, paths)


@pytest.mark.parametrize("store", ["local", "s3"])
def test_two_runs_without_a_lock(
    store: str, spark: SparkSession, paths: LakePaths, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """As on a lake where a lock of the operating system has no effect, or where one run was paused until its lease ended.
    One run may fail; Delta decides which and where."""
    if store == "s3":
        request.getfixturevalue("s3_spark")
        paths = LakePaths(f"s3a://{request.getfixturevalue('s3').bucket}/{uuid.uuid4().hex}", "shop")
    _write_captures(tmp_path / "captures")
    start = threading.Barrier(2)

    def run(number: int) -> str | None:
        start.wait()
        try:
            ingest(spark, paths, tmp_path / "captures", run_id=f"run-{number}")
        except Exception as error:
            return str(error)
        return None

    errors = map_in_threads(spark, run, range(2), threads=2)
    print([error and error[:300] for error in errors])
    ingest(spark, paths, tmp_path / "captures")
    _assert_correct(spark, paths)
