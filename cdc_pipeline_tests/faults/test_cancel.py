"""A canceled run, as by the button of the UI: it ends at once and reports it, and the next run resumes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dagster import DagsterInstance, DagsterRunStatus

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline_tests.support.lakes.story_lake import FIRST, StoryLake, as_a_new_process
from cdc_pipeline_tests.support.messages import tso
from cdc_pipeline_tests.support.spark_settings import SHORT_LIVED, write_defaults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.jvm

_ROOT = Path(__file__).parents[2]
_PATIENCE_SECONDS = 300.0


def _job(lake: StoryLake, home: Path) -> subprocess.Popen[bytes]:
    """A run of `shop_ingest` in its own process, as Dagster's launcher starts it."""
    home.mkdir()
    shutil.copy(_ROOT / "dagster.yaml", home)
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "CDC_CAPTURES": str(lake.folder / "captures"),
        "CDC_LAKE": str(lake.folder / "lake"),
        "CDC_DRIVER_MEMORY": "2g",
        **write_defaults(home / "spark", SHORT_LIVED),
    }
    return subprocess.Popen(
        [
            str(Path(sys.executable).with_name("dagster")),
            "job",
            "execute",
            "-m",
            "cdc_pipeline.definitions",
            "-j",
            "shop_ingest",
        ],
        cwd=_ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def test_a_canceled_run_ends_and_the_next_one_resumes(
    spark: SparkSession, first_slice: StoryLake, tmp_path: Path
) -> None:
    lake = first_slice.copied(tmp_path)
    run = _job(lake, tmp_path / "home")
    try:
        until, decoded = time.monotonic() + _PATIENCE_SECONDS, Path(lake.paths.table("batches")) / "_delta_log"
        while not (decoded / f"{1:020}.json").exists():  # the second slice is decoded, its cut begins
            assert run.poll() is None, "the run ended by itself"
            assert time.monotonic() < until
            time.sleep(0.05)
        with DagsterInstance.from_config(str(tmp_path / "home")) as instance:
            (found,) = instance.get_runs()
            instance.report_run_canceling(found)  # as the button does before it interrupts the run's process
        run.send_signal(signal.SIGINT)
        run.wait(60)
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    with DagsterInstance.from_config(str(tmp_path / "home")) as instance:
        assert [found.status for found in instance.get_runs()] == [DagsterRunStatus.CANCELED]
    as_a_new_process(spark)
    assert published_cut(Lake(spark, lake.paths)).resolved_tso == tso(FIRST)
    lake.run()
    lake.assert_right()
