"""The pipeline against the model: after every slice each mirror is the table that upstream had at the resolved TSO.

Several histories go through one lake, each with its own topic, and the run is killed at random commits on the way. A
failure names the seed; a seed that failed once is kept in `KEPT`. More: CDC_HISTORIES=200 CDC_HISTORY_SEED=7 make test-long.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings

from cdc_pipeline.mirrors.cuts.cut import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import published_entries
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.execution import row_steps
from cdc_pipeline.mirrors.reading import read_cut
from cdc_pipeline.mirrors.rebuild.rebuild import Rebuilder
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.window.progress import published_cut
from cdc_pipeline_tests.histories.choices import Seeded
from cdc_pipeline_tests.histories.combined import Combined, combined
from cdc_pipeline_tests.histories.history import drawn_settings
from cdc_pipeline_tests.histories.strategies import combinations, history_of_seed
from cdc_pipeline_tests.histories.told import SEED, TIME_MODES, TSO_MODES, RandomKiller, Told, histories_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cdc_pipeline_tests.histories.history import History

# Encoders as they are set up in practice → the modes, and the settings that are not drawn.
SETUPS: Mapping[str, tuple[tuple[str, ...], Mapping[str, Any]]] = {
    "ticdc_extension": (TSO_MODES, {}),
    "ticdc_default": (("default",), {}),
    "canal_one_partition": (("canal",), {"partitions": 1}),
    "canal_hashed": (("canal",), {"partitions": 3, "dispatcher": "key"}),
    "dataworks": (("dataworks",), {}),
}
# Seeds that once failed (the first of six histories), and whether DDL was made then; `mirrors/window/test_redeliveries.py`
# has the smallest form of each failure.
KEPT = ((1001, False),)


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


def _drawn_for(setup: str, seed: int, number: int) -> History:
    """A history of the set-up, in two files or more."""
    modes, fixed = SETUPS[setup]
    drawn = drawn_settings(Seeded(seed), modes[number % len(modes)], seed=seed, complete=True)
    used = replace(drawn, slices=max(2, drawn.slices), **fixed)
    return history_of_seed(seed, transactions=15, settings=used)


@pytest.mark.long
@pytest.mark.parametrize("setup", SETUPS)
def test_many_histories_of_a_setup(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, counted: Callable[[str, int], None], setup: str
) -> None:
    """CDC_HISTORIES of one encoder as it is set up in practice, six in a lake, fed in slices through kills."""
    count, first = int(os.environ.get("CDC_HISTORIES", "30")), SEED + 4000
    wrong, kills = [], 0
    for seed in range(first, first + count, 6):
        seeds = range(seed, min(seed + 6, first + count))
        histories = combined([_drawn_for(setup, seed, number) for number, seed in enumerate(seeds)])
        told = Told(spark, tmp_path_factory.mktemp("setup"), histories, RandomKiller(seed, 0.02))
        began = time.monotonic()
        told.tell()
        found = [f"seeds {seeds[0]} to {seeds[-1]}: {line}" for line in told.wrong]
        kills += told.killer.kills
        counted("histories compared", len(histories.histories))
        tables = f"{len(told.compared_tables)} tables, {len(told.doubts)} of them in doubt"
        seconds = f"{time.monotonic() - began:.0f} s"
        print(f"{setup} {seeds}: {tables}, {told.killer.kills} kills, {seconds}", *found, sep="\n  ", flush=True)
        wrong += found
    counted("runs stopped at a commit or a move", kills)
    assert wrong == []


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
