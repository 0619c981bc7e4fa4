"""The pipeline against the model: after each slice, each mirror equals its upstream table at the resolved TSO.

One lake holds several histories, each with its own topic. The run is killed at random commits. A failure shows the seed.
Seeds that failed once are in `KEPT`. To run more histories with other seeds:
CDC_HISTORIES=30 CDC_HISTORY_SEED=7000 make test-all TEST_FLAGS="-k many_histories".
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from pyspark.sql import SparkSession

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_report import published_entries
from cdc_pipeline.mirrors.cuts.reading import read_cut
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.merge import apply_rows
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.histories.combined import Combined, combined
from cdc_pipeline_tests.histories.ingested import (
    SEED,
    IngestedHistories,
    RandomKiller,
    histories_of,
)
from cdc_pipeline_tests.histories.setups import SETUPS, TIME_MODES, TSO_MODES, history_of_setup
from cdc_pipeline_tests.histories.strategies import combinations

# Seeds that once failed (first of six histories), and whether that run had DDL. `mirrors/changes/test_redeliveries.py` has
# the smallest form of each failure.
KEPT = ((1001, False),)


def _ingested(
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
) -> IngestedHistories:
    histories = histories_of(modes, seed, count, transactions, ddl=ddl)
    ingested = IngestedHistories(spark, folder, histories, RandomKiller(seed, share), columns)
    ingested.ingest_files()
    return ingested


@pytest.fixture(scope="module")
def with_watermarks(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> IngestedHistories:
    return _ingested(spark, tmp_path_factory.mktemp("tso"), TSO_MODES, SEED, 3, 0.03, transactions=12)


@pytest.fixture(scope="module")
def without_watermarks(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> IngestedHistories:
    with patch.object(apply_rows, "SMALL_MIRROR", 0):  # merges as for large mirrors
        return _ingested(spark, tmp_path_factory.mktemp("time"), TIME_MODES, SEED, 3, 0.03, transactions=12)


@pytest.fixture(scope="module")
def core(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> IngestedHistories:
    return _ingested(spark, tmp_path_factory.mktemp("core"), TSO_MODES, SEED + 1, 1, 0.05, transactions=6)


@pytest.mark.parametrize(
    "group", [pytest.param("core", marks=pytest.mark.core(3, 5)), "with_watermarks", "without_watermarks"]
)
def test_mirrors_equal_the_model(
    request: pytest.FixtureRequest, spark: SparkSession, group: str, counted: Callable[[str, int], None]
) -> None:
    ingested: IngestedHistories = request.getfixturevalue(group)
    counted("histories compared", len(ingested.histories.histories))
    counted("runs stopped at a commit or a move", ingested.killer.kills)
    counted("cuts finished under other settings than they were begun with", ingested.finished_under_other_settings)
    assert ingested.wrong == [], ingested.histories
    assert lake_balance(Lake(spark, ingested.paths)).is_balanced
    cuts = spark.read.format("delta").load(ingested.paths.table("consistent_cuts"))
    # without watermarks a file may bring what is older than the cut before it (promise 3): then the table has a gap
    if ingested.histories.watermarks or not ingested.doubts:
        assert cuts.where("breaches > 0").count() == 0


def test_the_runs_were_killed(with_watermarks: IngestedHistories, without_watermarks: IngestedHistories) -> None:
    assert with_watermarks.killer.kills + without_watermarks.killer.kills > 0


def _differences_at_cut(ingested: IngestedHistories, seed: int) -> list[str]:
    """Differences of the tables at a published cut drawn from the seed."""
    number = random.Random(seed).randrange(len(ingested.histories.slices))
    tso, truth = ingested.histories.resolved_after(number), ingested.histories.truth_after(number)
    if tso is None or truth is None:
        return []
    cut = read_cut(ingested.spark, ingested.paths.root, ingested.paths.pipeline, tso)
    assert cut.resolved_tso == tso
    # a table that was in doubt then may have lost its gap since, for example by a TRUNCATE
    sure = {name: rows for name, rows in cut.items() if name not in ingested.doubts}
    truth = {name: content for name, content in truth.items() if TableName(*name) not in ingested.doubts}
    return [f"at {tso}: {line}" for line in ingested.compared(truth, sure)]


def _all_differences(ingested: IngestedHistories, seed: int) -> list[str]:
    wrong = [*ingested.wrong, *ingested.rebuild_differences()]
    return wrong + _differences_at_cut(ingested, seed) if ingested.histories.watermarks else wrong


# CDC_HISTORIES histories of each set-up, six per lake.
_A_LAKE = 6
_FIRST = range(0, int(os.environ.get("CDC_HISTORIES", "12")), _A_LAKE)


@pytest.mark.long
@pytest.mark.parametrize("first", [SEED + 4000 + number for number in _FIRST])
@pytest.mark.parametrize("setup", SETUPS)
def test_many_histories_of_a_setup(
    spark: SparkSession, tmp_path: Path, counted: Callable[[str, int], None], setup: str, first: int
) -> None:
    """Histories of one encoder set-up, ingested file by file with kills."""
    histories = combined([history_of_setup(setup, first + number, number) for number in range(_A_LAKE)])
    ingested = IngestedHistories(spark, tmp_path, histories, RandomKiller(first, 0.02))
    ingested.ingest_files()
    _report(ingested, f"{setup} {first}", counted)
    assert ingested.wrong == []


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
    """All encoders in one lake: compared after each file, after a rebuild, and at an earlier cut."""
    ingested = _ingested(spark, tmp_path, modes, first, _A_LAKE, 0.03, ddl=ddl)
    wrong = _all_differences(ingested, first)
    _report(ingested, f"{modes} {first}", counted)
    assert wrong == []
    assert ingested.killer.kills > 0


def _report(ingested: IngestedHistories, name: str, counted: Callable[[str, int], None]) -> None:
    counted("histories compared", len(ingested.histories.histories))
    counted("runs stopped at a commit or a move", ingested.killer.kills)
    tables = f"{len(ingested.compared_tables)} tables, {len(ingested.doubts)} of them in doubt"
    print(f"{name}: {tables}, {ingested.killer.kills} kills", *ingested.wrong, sep="\n  ", flush=True)


@pytest.mark.long
@pytest.mark.parametrize("modes", [TSO_MODES, TIME_MODES], ids=["with_watermarks", "without_watermarks"])
def test_mirrors_with_soft_deletes(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, modes: tuple[str, ...]
) -> None:
    """Live rows equal the model, and a rebuild yields the same deleted rows."""
    rules = ColumnRules(soft_delete=("*",))
    ingested = _ingested(spark, tmp_path_factory.mktemp("soft"), modes, SEED, 3, 0.02, columns=rules)
    assert _all_differences(ingested, SEED) == []
    entries = published_entries(published_cut(Lake(spark, ingested.paths)), ingested.paths)
    kept = [spark.read.format("delta").load(entry.path).where("_deleted") for entry in entries if entry.keeps_deleted]
    assert sum(rows.count() for rows in kept) > 0


@pytest.mark.long
@pytest.mark.parametrize("modes", [TSO_MODES, TIME_MODES], ids=["with_watermarks", "without_watermarks"])
def test_histories_that_hypothesis_draws(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, modes: tuple[str, ...]
) -> None:
    # no shrinking: each example takes minutes of Spark; the printed blob repeats it
    @settings(max_examples=5, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate), print_blob=True)
    @given(histories=combinations(modes, count=4))
    def holds(histories: Combined) -> None:
        ingested = IngestedHistories(spark, tmp_path_factory.mktemp("drawn"), histories, RandomKiller(0, 0.02))
        ingested.ingest_files()
        assert ingested.wrong == []

    holds()
