"""kill -9 of runs, JVM and all, on histories of the model: at commits that follow one another, and at random moments."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline_tests.histories.told import SEED, TIME_MODES, TSO_MODES, RandomKiller, Told, histories_of
from cdc_pipeline_tests.support.lakes.told import as_a_new_process

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from cdc_pipeline_tests.histories.combined import Combined

pytestmark = pytest.mark.jvm

_LONGEST_RUN = 600


def _run(told: Told, deed: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "cdc_pipeline_tests.support.lakes.killed_run",
            told.paths.root,
            str(told.captures),
            str(deed),
        ],
        cwd=Path(__file__).parents[2],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _is_ready(run: subprocess.Popen[str]) -> bool:
    """Whether Spark has started in a run; on a slow machine, lines that say how long that takes come first."""
    assert run.stdout is not None
    return any(line == "ready\n" for line in run.stdout)


def _got_through(told: Told, deed: int, moment: float | None) -> bool:
    """Whether a run that is to be killed before this deed, or so many seconds after Spark has started, ended before it."""
    run = _run(told, deed)
    assert _is_ready(run), run.communicate()[1]
    try:
        _, said = run.communicate(timeout=_LONGEST_RUN if moment is None else moment)
    except subprocess.TimeoutExpired:
        assert moment is not None, "the run hangs"
        os.killpg(run.pid, signal.SIGKILL)
        _, said = run.communicate()
    assert run.returncode in (0, -signal.SIGKILL), said
    return run.returncode == 0


class ToldToProcesses(Told):
    """Histories that are taken in by processes, of which so many are killed, shared out over the files; what a file's runs
    got through before falls to the next."""

    def __init__(self, spark: SparkSession, folder: Path, histories: Combined, kills: int) -> None:
        super().__init__(spark, folder, histories, RandomKiller(SEED, 0))
        self._chance = random.Random(SEED)
        files = len(list(histories.files()))
        self._kills = [kills // files + (number < kills % files) for number in range(files)]

    def take_in(self) -> None:
        deed, until = 0, self.killer.kills + self._kills.pop(0)
        while self.killer.kills < until:
            at_random = self._chance.random() < 0.3
            moment = self._chance.uniform(0.5, 12) if at_random else None
            if _got_through(self, -1 if at_random else deed, moment):
                if self._kills:
                    self._kills[0] += until - self.killer.kills
                break
            self.killer.kills += 1
            deed += 0 if at_random else self._chance.choice((1, 1, 1, 2))
        assert _got_through(self, -1, None)
        as_a_new_process(self.spark)


@pytest.mark.parametrize(
    ("modes", "count", "kills"),
    [
        (TSO_MODES, 1, 2),
        pytest.param(TSO_MODES, 3, 30, marks=pytest.mark.long),
        pytest.param(TIME_MODES, 3, 25, marks=pytest.mark.long),
    ],
    ids=["short", "with_watermarks", "without_watermarks"],
)
def test_mirrors_equal_the_model_after_each_recovery(
    spark: SparkSession,
    tmp_path: Path,
    counted: Callable[[str, int], None],
    modes: tuple[str, ...],
    count: int,
    kills: int,
) -> None:
    told = ToldToProcesses(spark, tmp_path, histories_of(modes, SEED, count, 4 * count, ddl=True), kills)
    told.tell()
    counted("runs killed with kill -9", told.killer.kills)
    counted("histories compared", count)
    assert told.wrong == []
    assert told.killer.kills > 0
    assert lake_balance(spark, told.paths).is_balanced
