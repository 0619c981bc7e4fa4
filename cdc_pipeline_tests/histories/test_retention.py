"""Old raw records leave the lake between two files; what follows, and a rebuild from the kept cut, equal the model.

Runs are killed at random commits. To run other histories:
CDC_HISTORIES=40 CDC_HISTORY_SEED=7000 make test-all TEST_FLAGS="-k many_removals".
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.tables.kept_cuts import removed_batches
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.stored_plan import is_begun
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.operations.retention import Retention
from cdc_pipeline_tests.histories.combined import Combined, combined
from cdc_pipeline_tests.histories.ingested import SEED, IngestedHistories, RandomKiller
from cdc_pipeline_tests.histories.setups import SETUPS, history_of_setup
from cdc_pipeline_tests.support.lakes.kills import ingested_with_kills


class AgingHistories(IngestedHistories):
    """After some files the raw records so far are old."""

    def __init__(self, spark: SparkSession, folder: Path, histories: Combined, killer: RandomKiller, seed: int) -> None:
        super().__init__(spark, folder, histories, killer, root=str(folder / "lake"))
        self._ages = random.Random(seed)
        self.removals = 0

    def ingest_file(self) -> None:
        super().ingest_file()
        if self._ages.random() < 0.6:
            ingested_with_kills(self.spark, self.paths, self.captures, self.killer, run=lambda *_, **__: self._remove())

    def _remove(self) -> None:
        lake = Lake(self.spark, self.paths)
        published, before = published_cut(lake), removed_batches(lake, "raw_topic_snapshot")
        if not is_begun(lake, published):
            Retention({"raw_topic_snapshot": 0}).advance(lake, "maintain", lambda line: None)
            self.removals += removed_batches(lake, "raw_topic_snapshot") != before
            self.begins_later = self.removals > 0


def _ingested(spark: SparkSession, folder: Path, setup: str, seed: int, count: int, **sizes: int) -> AgingHistories:
    histories = combined([history_of_setup(setup, seed + number, number, **sizes) for number in range(count)])
    ingested = AgingHistories(spark, folder, histories, RandomKiller(seed, 0.01), seed)
    ingested.ingest_files()
    return ingested


def _differences(ingested: AgingHistories) -> list[str]:
    found = [*ingested.wrong, *ingested.rebuild_differences()]
    if not lake_balance(Lake(ingested.spark, ingested.paths)).is_balanced:
        found.append("the counts of the cuts do not balance")
    return found


def _report(ingested: AgingHistories, counted: Callable[[str, int], None]) -> None:
    counted("histories compared", len(ingested.histories.histories))
    counted("removals of raw records", ingested.removals)
    counted("tables in doubt", len(ingested.doubts))
    counted("runs stopped at a commit or a move", ingested.killer.kills)


@pytest.mark.parametrize("setup", ["ticdc_extension", "canal_one_partition"])
def test_removed_and_rebuilt(
    spark: SparkSession, tmp_path: Path, counted: Callable[[str, int], None], setup: str
) -> None:
    ingested = _ingested(spark, tmp_path, setup, SEED + 1, 1, slices=2, transactions=6)
    _report(ingested, counted)
    assert ingested.removals
    assert _differences(ingested) == [], ingested.histories


# CDC_HISTORIES histories of each set-up, six per lake.
_A_LAKE = 6
_FIRST = range(SEED + 8000, SEED + 8000 + int(os.environ.get("CDC_HISTORIES", "12")), _A_LAKE)


@pytest.mark.long
@pytest.mark.parametrize("first", _FIRST)
@pytest.mark.parametrize("setup", SETUPS)
def test_many_removals(
    spark: SparkSession, tmp_path: Path, counted: Callable[[str, int], None], setup: str, first: int
) -> None:
    ingested = _ingested(spark, tmp_path, setup, first, _A_LAKE)
    _report(ingested, counted)
    assert _differences(ingested) == [], ingested.histories
