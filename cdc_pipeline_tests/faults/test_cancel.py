"""A canceled run, as by the button of the UI: it ends and reports it, and the next run resumes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dagster import DagsterInstance, DagsterRunStatus

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline_tests.support.lakes.story_lake import FIRST, StoryLake, as_a_new_process
from cdc_pipeline_tests.support.messages import watermark_tso
from cdc_pipeline_tests.support.spark_settings import SHORT_LIVED, write_defaults

pytestmark = pytest.mark.jvm

_ROOT = Path(__file__).parents[2]
_PATIENCE_SECONDS = 300.0


def _job(lake: StoryLake, home: Path, name: str) -> subprocess.Popen[bytes]:
    """A run of the job in its own process, as Dagster's launcher starts it."""
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
            name,
        ],
        cwd=_ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _cancel_after(lake: StoryLake, home: Path, job: str, table: str) -> None:
    """Cancels a run of the job when it has committed its second version of the table, and waits for its end."""
    run = _job(lake, home, job)
    try:
        until, commit = time.monotonic() + _PATIENCE_SECONDS, Path(lake.paths.table(table)) / "_delta_log"
        while not (commit / f"{1:020}.json").exists():
            assert run.poll() is None, "the run ended by itself"
            assert time.monotonic() < until
            time.sleep(0.05)
        with DagsterInstance.from_config(str(home)) as instance:
            (found,) = instance.get_runs()
            instance.report_run_canceling(found)  # as the button does before it interrupts the run's process
        run.send_signal(signal.SIGINT)
        run.wait(_PATIENCE_SECONDS)
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    with DagsterInstance.from_config(str(home)) as instance:
        assert [found.status for found in instance.get_runs()] == [DagsterRunStatus.CANCELED]


def _assert_resumes(lake: StoryLake) -> None:
    """The lake is at the first cut. The next run makes it right."""
    as_a_new_process(lake.spark)
    assert published_cut(Lake(lake.spark, lake.paths)).resolved_tso == watermark_tso(FIRST)
    lake.run()
    lake.assert_right()


def test_a_canceled_run_ends_and_the_next_one_resumes(first_slice: StoryLake, tmp_path: Path) -> None:
    lake = first_slice.copied(tmp_path)
    _cancel_after(lake, tmp_path / "home", "shop_ingest", "batches")  # the second slice is decoded, its cut begins
    _assert_resumes(lake)


def test_a_canceled_run_that_follows_finishes_its_stage(first_slice: StoryLake, tmp_path: Path) -> None:
    lake = first_slice.copied(tmp_path)
    _cancel_after(lake, tmp_path / "home", "shop_follow", "change_log")
    decoded = Path(lake.paths.table("batches")) / "_delta_log" / f"{1:020}.json"
    assert decoded.exists()  # the last commit of the stage
    _assert_resumes(lake)
