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

from cdc_pipeline.mirrors.totals import lake_balance
from cdc_pipeline_tests.faults.told import as_a_new_process
from cdc_pipeline_tests.histories.test_mirrors import SEED, TIME_MODES, TSO_MODES, RandomKiller, Told, histories_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

_LONGEST_RUN = 600


def _run(told: Told, deed: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "cdc_pipeline_tests.faults.killed_run", told.paths.root, str(told.captures), str(deed)],
        cwd=Path(__file__).parents[2],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _got_through(told: Told, deed: int, moment: float | None) -> bool:
    """Whether a run that is to be killed before this deed, or so many seconds after Spark has started, ended before it."""
    run = _run(told, deed)
    assert run.stdout is not None
    assert run.stdout.readline() == "ready\n"
    try:
        _, said = run.communicate(timeout=_LONGEST_RUN if moment is None else moment)
    except subprocess.TimeoutExpired:
        assert moment is not None, "the run hangs"
        os.killpg(run.pid, signal.SIGKILL)
        _, said = run.communicate()
    assert run.returncode in (0, -signal.SIGKILL), said
    return run.returncode == 0


def survived(told: Told, kills: int, seed: int) -> list[str]:
    """What is wrong after each recovery, in words. The kills are shared out over the files."""
    chance, wrong = random.Random(seed), []
    files = list(told.histories.files())
    for number, lines in enumerate(files):
        (told.captures / f"{number}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        deed = 0
        for _ in range(kills // len(files) + (number < kills % len(files))):
            at_random = chance.random() < 0.3
            moment = chance.uniform(0.5, 12) if at_random else None
            if _got_through(told, -1 if at_random else deed, moment):
                break
            told.killer.kills += 1
            deed += 0 if at_random else chance.choice((1, 1, 2, 3))
        assert _got_through(told, -1, None)
        as_a_new_process(told.spark)
        truth = told.histories.truth_after(number)
        if truth is not None:
            wrong += [f"after file {number}: {line}" for line in told.compared(truth, told.mirrors(truth))]
    return wrong


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
    told = Told(spark, tmp_path, histories_of(modes, SEED, count, 4 * count, ddl=True), RandomKiller(SEED, 0))
    wrong = survived(told, kills, SEED)
    counted("runs killed with kill -9", told.killer.kills)
    counted("histories compared", count)
    assert wrong == []
    assert told.killer.kills > 0
    assert lake_balance(spark, told.paths).balanced
