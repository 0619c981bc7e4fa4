"""Before images of the model's streams contradict nothing: disturbances of delivery are no faults.

To run other histories: CDC_HISTORIES=40 CDC_HISTORY_SEED=7000 make test-all TEST_FLAGS="-k many_verified".
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.tables.verifications import read_verifications, verified_totals
from cdc_pipeline.mirrors.operations.verification import Verifier
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline_tests.histories.combined import combined
from cdc_pipeline_tests.histories.ingested import SEED, IngestedHistories, RandomKiller
from cdc_pipeline_tests.histories.setups import SETUPS, history_of_setup


class VerifiedHistories(IngestedHistories):
    """Mirrors are verified after each file."""

    def ingest_file(self) -> None:
        super().ingest_file()
        Verifier(Lake(self.spark, self.paths), CutSettings("UTC"), self.wrong.append).verify("verify")


def _ingested(spark: SparkSession, folder: Path, setup: str, seed: int, count: int, **sizes: int) -> VerifiedHistories:
    histories = combined([history_of_setup(setup, seed + number, number, **sizes) for number in range(count)])
    ingested = VerifiedHistories(spark, folder, histories, RandomKiller(seed, 0.01))
    ingested.ingest_files()
    return ingested


def _report(ingested: VerifiedHistories, counted: Callable[[str, int], None]) -> int:
    totals = verified_totals(read_verifications(Lake(ingested.spark, ingested.paths))).values()
    counted("row changes", sum(one.changes for one in totals))
    counted("row changes that proved their row", proved := sum(one.proved for one in totals))
    return proved


@pytest.mark.parametrize("setup", ["ticdc_extension", "canal_one_partition"])
def test_nothing_contradicts(
    spark: SparkSession, tmp_path: Path, counted: Callable[[str, int], None], setup: str
) -> None:
    ingested = _ingested(spark, tmp_path, setup, SEED + 1, 1, slices=2, transactions=12)
    assert _report(ingested, counted) > 1
    assert ingested.wrong == [], ingested.histories


# CDC_HISTORIES histories of each set-up, six per lake.
_A_LAKE = 6
_FIRST = range(SEED + 9000, SEED + 9000 + int(os.environ.get("CDC_HISTORIES", "12")), _A_LAKE)


@pytest.mark.long
@pytest.mark.parametrize("first", _FIRST)
@pytest.mark.parametrize("setup", SETUPS)
def test_many_verified(
    spark: SparkSession, tmp_path: Path, counted: Callable[[str, int], None], setup: str, first: int
) -> None:
    ingested = _ingested(spark, tmp_path, setup, first, _A_LAKE)
    _report(ingested, counted)
    assert ingested.wrong == [], ingested.histories
