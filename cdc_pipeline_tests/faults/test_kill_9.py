"""kill -9 of runs with their JVM, on histories of the model: at successive commits, and at random moments."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline_tests.histories.combined import Combined
from cdc_pipeline_tests.histories.ingested import (
    SEED,
    IngestedHistories,
    RandomKiller,
    histories_of,
)
from cdc_pipeline_tests.histories.setups import TIME_MODES, TSO_MODES
from cdc_pipeline_tests.support.lakes.story_lake import as_a_new_process
from cdc_pipeline_tests.support.servers.object_store import ObjectStore

pytestmark = pytest.mark.jvm

# A run takes three minutes alone on two cores, and ten beside three others.
_LONGEST_RUN = 3600


def _run(ingested: IngestedHistories, operation: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "cdc_pipeline_tests.support.lakes.killed_run",
            ingested.paths.root,
            str(ingested.captures),
            str(operation),
        ],
        cwd=Path(__file__).parents[2],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _is_ready(run: subprocess.Popen[str]) -> bool:
    """Whether Spark has started in a run. On a slow machine, progress lines precede that."""
    assert run.stdout is not None
    return any(line == "ready\n" for line in run.stdout)


def _has_finished(ingested: IngestedHistories, operation: int, moment: float | None) -> bool:
    """Whether a run finished before it was killed: at this commit or move, or `moment` seconds after Spark started."""
    run = _run(ingested, operation)
    assert _is_ready(run), run.communicate()[1]
    try:
        _, errors = run.communicate(timeout=_LONGEST_RUN if moment is None else moment)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        _, errors = run.communicate()
        assert moment is not None, f"the run has not ended after {_LONGEST_RUN} seconds: {errors}"
    assert run.returncode in (0, -signal.SIGKILL), errors
    return run.returncode == 0


class IngestedByProcesses(IngestedHistories):
    """Histories ingested by processes. `kills`: how many of these processes are killed.

    The kills are distributed over the files. A file whose runs finish early leaves its kills to the next file.
    """

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        histories: Combined,
        kills: int,
        seed: int,
        root: str | None = None,
    ) -> None:
        super().__init__(spark, folder, histories, RandomKiller(seed, 0), root=root)
        self._chance = random.Random(seed)
        files = len(list(histories.files()))
        self._kills = [kills // files + (number < kills % files) for number in range(files)]

    def ingest_file(self) -> None:
        operation, until = 0, self.killer.kills + self._kills.pop(0)
        while self.killer.kills < until:
            at_random = self._chance.random() < 0.3
            moment = self._chance.uniform(0.5, 12) if at_random else None
            if _has_finished(self, -1 if at_random else operation, moment):
                if self._kills:
                    self._kills[0] += until - self.killer.kills
                break
            self.killer.kills += 1
            operation += 0 if at_random else self._chance.choice((1, 1, 1, 2))
        assert _has_finished(self, -1, None)
        as_a_new_process(self.spark)


@pytest.mark.parametrize(
    ("modes", "count", "kills", "seed"),
    [
        (TSO_MODES, 1, 2, SEED),
        # each kill costs the start of a JVM: several tests, so that no shard takes long
        *(pytest.param(TSO_MODES, 3, 10, SEED + more, marks=pytest.mark.long) for more in (0, 20, 40)),
        *(pytest.param(TIME_MODES, 3, 9, SEED + more, marks=pytest.mark.long) for more in (0, 20, 40)),
    ],
    ids=["short", *(f"{kind}_watermarks_{part}" for kind in ("with", "without") for part in (1, 2, 3))],
)
def test_mirrors_equal_the_model_after_each_recovery(
    spark: SparkSession,
    tmp_path: Path,
    counted: Callable[[str, int], None],
    modes: tuple[str, ...],
    count: int,
    kills: int,
    seed: int,
) -> None:
    histories = histories_of(modes, seed, count, 4 * count, ddl=True)
    _assert_recovers(IngestedByProcesses(spark, tmp_path, histories, kills, seed), counted)


@pytest.mark.long
def test_a_lake_on_s3(
    s3_spark: SparkSession, s3: ObjectStore, tmp_path: Path, counted: Callable[[str, int], None]
) -> None:
    histories = histories_of(TSO_MODES, SEED + 60, 1, 4, ddl=True)
    root = f"s3a://{s3.bucket}/{uuid.uuid4().hex}"
    _assert_recovers(IngestedByProcesses(s3_spark, tmp_path, histories, 8, SEED + 60, root), counted)


def _assert_recovers(ingested: IngestedByProcesses, counted: Callable[[str, int], None]) -> None:
    ingested.ingest_files()
    counted("runs killed with kill -9", ingested.killer.kills)
    counted("histories compared", len(ingested.histories.histories))
    assert ingested.wrong == []
    assert ingested.killer.kills > 0
    assert lake_balance(Lake(ingested.spark, ingested.paths)).is_balanced
