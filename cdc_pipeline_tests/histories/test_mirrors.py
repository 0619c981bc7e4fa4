"""The pipeline against the model: after every slice each mirror is the table that upstream had at the resolved TSO.

Several histories go through one lake, each with its own topic, and the run is killed at random commits on the way. A
failure names the seed; a seed that failed once is kept in `KEPT`. More histories, and others:
CDC_HISTORIES=30 CDC_HISTORY_SEED=7000 make test-all TEST_FLAGS="-k many_histories".
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings

from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import published_entries
from cdc_pipeline.mirrors.cuts.reading import read_cut
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.merge import apply_rows
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
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
# Seeds that once failed (the first of six histories), and whether DDL was made then; `mirrors/changes/test_redeliveries.py`
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
    with patch.object(apply_rows, "SMALL_MIRROR", 0):  # as mirrors are merged that are large
        return _told(spark, tmp_path_factory.mktemp("time"), TIME_MODES, SEED, 3, 0.03, transactions=12)


@pytest.fixture(scope="module")
def core(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return _told(spark, tmp_path_factory.mktemp("core"), TSO_MODES, SEED + 1, 1, 0.05, transactions=6)


@pytest.mark.parametrize(
    "group", [pytest.param("core", marks=pytest.mark.core(3, 5)), "with_watermarks", "without_watermarks"]
)
def test_mirrors_equal_the_model(
    request: pytest.FixtureRequest, spark: SparkSession, group: str, counted: Callable[[str, int], None]
) -> None:
    told: Told = request.getfixturevalue(group)
    counted("histories compared", len(told.histories.histories))
    counted("runs stopped at a commit or a move", told.killer.kills)
    counted("cuts finished under other settings than they were begun with", told.finished_otherwise)
    assert told.wrong == [], told.histories
    assert lake_balance(spark, told.paths).is_balanced
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
    report = Rebuilder(maker, "auto").rebuild()
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


# CDC_HISTORIES of each set-up, six in a lake.
_A_LAKE = 6
_FIRST = range(0, int(os.environ.get("CDC_HISTORIES", "12")), _A_LAKE)


@pytest.mark.long
@pytest.mark.parametrize("first", [SEED + 4000 + number for number in _FIRST])
@pytest.mark.parametrize("setup", SETUPS)
def test_many_histories_of_a_setup(
    spark: SparkSession, tmp_path: Path, counted: Callable[[str, int], None], setup: str, first: int
) -> None:
    """Histories of one encoder as it is set up in practice, fed in slices through kills."""
    histories = combined([_drawn_for(setup, first + number, number) for number in range(_A_LAKE)])
    told = Told(spark, tmp_path, histories, RandomKiller(first, 0.02))
    told.tell()
    _report(told, f"{setup} {first}", counted)
    assert told.wrong == []


@pytest.mark.long
@pytest.mark.parametrize(("first", "ddl"), [*KEPT, *((SEED + 2000 + number, True) for number in _FIRST)])
@pytest.mark.parametrize("modes", [TSO_MODES, TIME_MODES], ids=["with_watermarks", "without_watermarks"])
def test_many_histories(
    spark: SparkSession,
    tmp_path: Path,
    counted: Callable[[str, int], None],
    modes: tuple[str, ...],
    first: int,
    ddl: bool,
) -> None:
    """All encoders in one lake: after each file, at a moment between two cuts, and rebuilt."""
    told = _told(spark, tmp_path, modes, first, _A_LAKE, 0.03, ddl=ddl)
    wrong = _all_wrong(told, first)
    _report(told, f"{modes} {first}", counted)
    assert wrong == []
    assert told.killer.kills > 0


def _report(told: Told, name: str, counted: Callable[[str, int], None]) -> None:
    counted("histories compared", len(told.histories.histories))
    counted("runs stopped at a commit or a move", told.killer.kills)
    tables = f"{len(told.compared_tables)} tables, {len(told.doubts)} of them in doubt"
    print(f"{name}: {tables}, {told.killer.kills} kills", *told.wrong, sep="\n  ", flush=True)


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
