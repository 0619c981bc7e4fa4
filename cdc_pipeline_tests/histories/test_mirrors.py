"""The pipeline against the model: after every slice each mirror is the table that upstream had at the resolved TSO.

Several histories go through one lake, each with its own topic, and the run is killed at random commits on the way. A
failure names the seed; a seed that failed once is kept in `KEPT`. More: CDC_HISTORIES=200 CDC_HISTORY_SEED=7 make test-long.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from cdc_pipeline.mirrors import apply
from cdc_pipeline.mirrors.totals import lake_balance
from cdc_pipeline.resources.delta import Commit
from cdc_pipeline.resources.lake import LakePaths
from cdc_pipeline.schemas.table import TableName
from cdc_pipeline_tests.histories.encoders import MODES, has_watermarks
from cdc_pipeline_tests.histories.history import Combined, combined
from cdc_pipeline_tests.histories.strategies import history_of_seed
from cdc_pipeline_tests.integration.test_kills import Killed, Killer
from cdc_pipeline_tests.pipelines import ingest
from cdc_pipeline_tests.truth import differences

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline_tests.histories.upstream import State

SEED = int(os.environ.get("CDC_HISTORY_SEED", "1"))
TSO_MODES = tuple(mode for mode in MODES if has_watermarks(mode))
TIME_MODES = tuple(mode for mode in MODES if not has_watermarks(mode))
# seeds that once failed, with the mode and what was wrong
KEPT: dict[int, str] = {}
_KEYS = {"uk": ("code",)}


class RandomKiller(Killer):
    """Kills a run now and then, at a commit or a move that it has not killed before."""

    def __init__(self, seed: int, share: float) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._share = share
        self.kills = 0

    def strike(self, *deed: object) -> None:
        if self._random.random() < self._share and deed not in self.seen:
            self.kills += 1
            super().strike(*deed)


class Told:
    """Histories in a lake."""

    def __init__(self, spark: SparkSession, folder: Path, histories: Combined, killer: RandomKiller) -> None:
        self.spark, self.histories, self.killer = spark, histories, killer
        self.paths = LakePaths(str(folder / "lake"), "h")
        self.captures = folder / "captures"
        self.captures.mkdir()
        # Canal and TiCDC do not name a UNIQUE NOT NULL key of a table whose CREATE was not seen; here all are seen
        self.wrong: list[str] = []

    def tell(self) -> None:
        for number, lines in enumerate(self.histories.files()):
            (self.captures / f"{number}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            self._run()
            truth = self.histories.truth_after(number)
            if truth is not None:
                self.wrong += [f"after file {number}: {line}" for line in self.compared(truth)]

    def _run(self) -> None:
        for _ in range(50):
            try:
                with (
                    patch.object(Commit, "note_json", property(self.killer.note_json)),
                    patch.object(apply, "move_folder", self.killer.move_folder),
                ):
                    ingest(self.spark, self.paths, self.captures)
            except Killed:
                continue
            return
        raise AssertionError("no run got through")

    def compared(self, truth: State, cut: dict[TableName, DataFrame] | None = None) -> list[str]:
        """What is wrong with the mirrors, or with the tables of a cut, in words."""
        wrong = []
        for table in self.histories.tables:
            rows = truth.get((table.database, table.name))
            if rows is None:
                continue
            name = TableName(table.database, table.name)
            frame = self.spark.read.format("delta").load(self.paths.mirror(name)) if cut is None else cut[name]
            columns, wanted = table.expected(rows)
            wrong += [f"{table.kind} {name}: {line}" for line in differences(frame, columns, wanted)]
        return wrong


def _histories(modes: tuple[str, ...], first_seed: int, count: int, transactions: int) -> Combined:
    """As many histories, the modes in turn."""
    return combined(
        [
            history_of_seed(seed, transactions=transactions, mode=modes[number % len(modes)], complete=True)
            for number, seed in enumerate(range(first_seed, first_seed + count))
        ]
    )


def _told(spark: SparkSession, folder: Path, modes: tuple[str, ...], seed: int, count: int, share: float) -> Told:
    told = Told(spark, folder, _histories(modes, seed, count, 15), RandomKiller(seed, share))
    told.tell()
    return told


@pytest.fixture(scope="module")
def with_watermarks(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return _told(spark, tmp_path_factory.mktemp("tso"), TSO_MODES, SEED, 3, 0.03)


@pytest.fixture(scope="module")
def without_watermarks(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return _told(spark, tmp_path_factory.mktemp("time"), TIME_MODES, SEED, 3, 0.03)


@pytest.mark.parametrize("group", ["with_watermarks", "without_watermarks"])
def test_mirrors_equal_the_model(request: pytest.FixtureRequest, spark: SparkSession, group: str) -> None:
    told: Told = request.getfixturevalue(group)
    assert told.wrong == [], told.histories
    assert lake_balance(spark, told.paths).balanced
    cuts = spark.read.format("delta").load(told.paths.table("consistent_cuts"))
    assert cuts.where("breaches > 0").count() == 0


def test_the_runs_were_killed(with_watermarks: Told, without_watermarks: Told) -> None:
    assert with_watermarks.killer.kills + without_watermarks.killer.kills > 0


@pytest.mark.long
def test_many_histories(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    count = int(os.environ.get("CDC_HISTORIES", "48"))
    wrong, kills = [], 0
    for seed in range(SEED + 1000, SEED + 1000 + count, 6):
        for modes in (TSO_MODES, TIME_MODES):
            told = _told(spark, tmp_path_factory.mktemp("many"), modes, seed, 6, 0.02)
            wrong += [f"seeds {seed} to {seed + 5}: {line}" for line in told.wrong]
            kills += told.killer.kills
            print(f"seeds {seed} to {seed + 5}, {modes}: {kills} kills, {len(wrong)} differences", flush=True)
    assert wrong == []
    assert kills > count / 2
