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
from hypothesis import Phase, given, settings

from cdc_pipeline.mirrors import cut, row_steps
from cdc_pipeline.mirrors.column_rules import ColumnRules
from cdc_pipeline.mirrors.cut import CutMaker
from cdc_pipeline.mirrors.cut_report import published_entries
from cdc_pipeline.mirrors.policy import DdlPolicy
from cdc_pipeline.mirrors.progress import published_cut
from cdc_pipeline.mirrors.reading import read_cut
from cdc_pipeline.mirrors.rebuild import Rebuilder
from cdc_pipeline.mirrors.selection import TableSelection
from cdc_pipeline.mirrors.soft_deletes import live_rows
from cdc_pipeline.mirrors.stored_plan import is_begun
from cdc_pipeline.mirrors.totals import lake_balance
from cdc_pipeline.resources.lake import LakePaths
from cdc_pipeline.schemas.table import TableName
from cdc_pipeline_tests.histories.combined import Combined, combined
from cdc_pipeline_tests.histories.encoders import MODES, has_watermarks
from cdc_pipeline_tests.histories.strategies import combinations, history_of_seed
from cdc_pipeline_tests.integration.test_kills import Killer, ingested_with_kills
from cdc_pipeline_tests.truth import differences

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline_tests.histories.shapes import State

# The default: few messages with DDL of many kinds, some of it sent again.
SEED = int(os.environ.get("CDC_HISTORY_SEED", "668"))
TSO_MODES = tuple(mode for mode in MODES if has_watermarks(mode))
TIME_MODES = tuple(mode for mode in MODES if not has_watermarks(mode))
# Seeds that once failed (the first of six histories), and whether DDL was made then; `mirrors/test_redeliveries.py` has the
# smallest form of each failure.
KEPT = ((1001, False),)


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

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        histories: Combined,
        killer: RandomKiller,
        columns: ColumnRules | None = None,
    ) -> None:
        self.spark, self.histories, self.killer, self.columns = spark, histories, killer, columns or ColumnRules()
        self.paths = LakePaths(str(folder / "lake"), "h")
        self.captures = folder / "captures"
        self.captures.mkdir()
        self.wrong: list[str] = []
        self.doubts: set[TableName] = set()
        self.compared_tables: set[TableName] = set()
        self._chance = random.Random(str(histories))
        self.finished_otherwise = 0

    def tell(self) -> None:
        for number, lines in enumerate(self.lines()):
            (self.captures / f"{number}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            self.take_in()
            truth = self.histories.truth_after(number)
            if truth is not None:
                self.wrong += [f"after file {number}: {line}" for line in self.compared(truth, self._mirrors(truth))]

    def lines(self) -> list[list[str]]:
        """What is told, file by file."""
        return self.histories.files()

    def take_in(self) -> None:
        """What has been told, by as many runs as that needs."""
        ingested_with_kills(self.spark, self.paths, self.captures, self.killer, self.columns, self._finished_otherwise)

    def _finished_otherwise(self) -> None:
        """What a killed run has begun, now and then under other settings: they must not change it."""
        if not is_begun(self.spark, self.paths, published_cut(self.spark, self.paths)) or self._chance.random() < 0.3:
            return
        others = CutMaker(
            self.spark,
            self.paths,
            "otherwise",
            self._chance.choice(("UTC", "Asia/Shanghai")),
            2,
            lambda line: None,
            {f"{database}.{table}": ("id",) for database, table in self.histories.final_truth()},
            DdlPolicy(self._chance.choice(("apply", "keep", "hold"))),
            TableSelection(exclude=(self._chance.choice(("*_a.*", "*.t1", "nothing.*")),)),
            self.columns,
        )
        # what has come since is for the run that follows
        with patch.object(cut, "next_window", lambda *_, **__: None):
            others.brought_up_to_date()
        self.finished_otherwise += 1

    def _mirrors(self, truth: State) -> dict[TableName, DataFrame]:
        """The mirrors that there are, as far as upstream has them, but for those of which the truth says nothing."""
        entries = published_entries(published_cut(self.spark, self.paths), self.paths)
        told = {database for database, _ in truth}
        return {
            entry.name: live_rows(self.spark.read.format("delta").load(entry.path), keeps_deleted=entry.keeps_deleted)
            for entry in entries
            if self.histories.watermarks or entry.name.database in told
        }

    def doubtful(self) -> set[TableName]:
        """The tables that say of themselves that the stream does not tell in which order their changes came."""
        entries = published_entries(published_cut(self.spark, self.paths), self.paths)
        found = {entry.name for entry in entries if any("in one moment" in gap for gap in entry.gaps)}
        self.doubts |= found
        return found

    def compared(self, truth: State, found: Mapping[TableName, DataFrame]) -> list[str]:
        """What is wrong with the tables, in words: each has the columns and rows of that time, and there are no others."""
        names = {TableName(*name): content for name, content in truth.items()}
        doubtful = self.doubtful()
        wrong = [f"{name} is missing" for name in sorted(names.keys() - found)]
        wrong += [f"{name} does not exist any more" for name in sorted(set(found) - names.keys())]
        self.compared_tables |= names.keys() & found.keys()
        for name in sorted((names.keys() & found) - doubtful):
            columns, rows = names[name].expected()
            wrong += [f"{name}: {line}" for line in differences(found[name], columns, rows)]
        return wrong


def histories_of(modes: tuple[str, ...], first_seed: int, count: int, transactions: int, *, ddl: bool) -> Combined:
    """As many histories, the modes in turn."""
    return combined(
        [
            history_of_seed(seed, transactions=transactions, mode=modes[number % len(modes)], complete=True, ddl=ddl)
            for number, seed in enumerate(range(first_seed, first_seed + count))
        ]
    )


def _told(
    spark: SparkSession,
    folder: Path,
    modes: tuple[str, ...],
    seed: int,
    count: int,
    share: float,
    *,
    ddl: bool = True,
    transactions: int = 15,
    columns: ColumnRules | None = None,
) -> Told:
    histories = histories_of(modes, seed, count, transactions, ddl=ddl)
    told = Told(spark, folder, histories, RandomKiller(seed, share), columns)
    told.tell()
    return told


@pytest.fixture(scope="module")
def with_watermarks(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return _told(spark, tmp_path_factory.mktemp("tso"), TSO_MODES, SEED, 3, 0.03, transactions=12)


@pytest.fixture(scope="module")
def without_watermarks(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    with patch.object(row_steps, "SMALL_MIRROR", 0):  # as mirrors are merged that are large
        return _told(spark, tmp_path_factory.mktemp("time"), TIME_MODES, SEED, 3, 0.03, transactions=12)


@pytest.mark.parametrize("group", ["with_watermarks", "without_watermarks"])
def test_mirrors_equal_the_model(
    request: pytest.FixtureRequest, spark: SparkSession, group: str, counted: Callable[[str, int], None]
) -> None:
    told: Told = request.getfixturevalue(group)
    counted("histories compared", len(told.histories.histories))
    counted("runs stopped at a commit or a move", told.killer.kills)
    counted("cuts finished under other settings than they were begun with", told.finished_otherwise)
    assert told.wrong == [], told.histories
    assert lake_balance(spark, told.paths).balanced
    cuts = spark.read.format("delta").load(told.paths.table("consistent_cuts"))
    assert cuts.where("breaches > 0").count() == 0


def test_the_runs_were_killed(with_watermarks: Told, without_watermarks: Told) -> None:
    assert with_watermarks.killer.kills + without_watermarks.killer.kills > 0


def _moment_wrong(told: Told, seed: int) -> list[str]:
    """What is wrong with the tables as of a TSO drawn from the seed."""
    commits = {event.commit_ts for history in told.histories.histories for event in history.upstream.events}
    # of a cut at the very TSO of DDL that came after its watermark the mirrors are as before that DDL
    cuts = {told.histories.resolved_after(number) for number in range(len(told.histories.slices))}
    tso = random.Random(seed).choice(sorted(commits - cuts))
    with read_cut(told.spark, told.paths.root, told.paths.pipeline, tso) as cut:
        return [f"at {tso}: {line}" for line in told.compared(told.histories.state_at(tso), cut)]


def _rebuild_wrong(told: Told) -> list[str]:
    """The tables of which a rebuild makes something else."""
    maker = CutMaker(told.spark, told.paths, "rebuild", "UTC", 2, lambda line: None, columns=told.columns)
    report = Rebuilder(maker, "auto").rebuilt()
    return [f"rebuilt: {table}" for table in report.tables if not table.equal]


def _all_wrong(told: Told, seed: int) -> list[str]:
    wrong = [*told.wrong, *_rebuild_wrong(told)]
    return wrong + _moment_wrong(told, seed) if told.histories.watermarks else wrong


@pytest.mark.long
def test_many_histories(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, counted: Callable[[str, int], None]
) -> None:
    """Six at a time: after each file, at a moment between two cuts, and rebuilt."""
    count = int(os.environ.get("CDC_HISTORIES", "48"))
    wrong, kills = [], 0
    for seed, ddl in (*KEPT, *((seed, True) for seed in range(SEED + 2000, SEED + 2000 + count, 6))):
        for modes in (TSO_MODES, TIME_MODES):
            told = _told(spark, tmp_path_factory.mktemp("many"), modes, seed, 6, 0.02, ddl=ddl)
            found = [f"seeds {seed} to {seed + 5}: {line}" for line in _all_wrong(told, seed)]
            kills += told.killer.kills
            counted("histories compared", len(told.histories.histories))
            print(f"seeds {seed} to {seed + 5}, {modes}: {told.killer.kills} kills", *found, sep="\n  ", flush=True)
            wrong += found
    counted("runs stopped at a commit or a move", kills)
    assert wrong == []
    assert kills > count / 2


@pytest.mark.long
@pytest.mark.parametrize("modes", [TSO_MODES, TIME_MODES], ids=["with_watermarks", "without_watermarks"])
def test_mirrors_that_keep_deleted_rows(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, modes: tuple[str, ...]
) -> None:
    """The rows that are there equal the model, and a rebuild has the same deleted ones."""
    rules = ColumnRules(soft_delete=("*",))
    told = _told(spark, tmp_path_factory.mktemp("soft"), modes, SEED, 3, 0.02, columns=rules)
    assert _all_wrong(told, SEED) == []
    entries = published_entries(published_cut(spark, told.paths), told.paths)
    kept = [spark.read.format("delta").load(entry.path).where("_deleted") for entry in entries if entry.keeps_deleted]
    assert sum(rows.count() for rows in kept) > 0


@pytest.mark.long
@pytest.mark.parametrize("modes", [TSO_MODES, TIME_MODES], ids=["with_watermarks", "without_watermarks"])
def test_histories_that_hypothesis_draws(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, modes: tuple[str, ...]
) -> None:
    # no shrinking: each example is minutes of Spark; the printed blob repeats it
    @settings(max_examples=5, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate), print_blob=True)
    @given(histories=combinations(modes, count=4))
    def holds(histories: Combined) -> None:
        told = Told(spark, tmp_path_factory.mktemp("drawn"), histories, RandomKiller(0, 0.02))
        told.tell()
        assert told.wrong == []

    holds()
