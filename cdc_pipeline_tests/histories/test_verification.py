"""Before images of the model's streams contradict nothing, because disturbances of delivery are no faults. If a change is
left out, they name its table.

To run other histories: CDC_HISTORIES=40 CDC_HISTORY_SEED=7000 make test-all TEST_FLAGS="-k many_verified".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.tables.verifications import read_verifications, verified_totals
from cdc_pipeline.mirrors.operations.verification import Verifier
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.histories.choices import Seeded
from cdc_pipeline_tests.histories.combined import combined
from cdc_pipeline_tests.histories.history import History, Settings, history_as_sent
from cdc_pipeline_tests.histories.ingested import SEED, IngestedHistories, RandomKiller
from cdc_pipeline_tests.histories.message import Message
from cdc_pipeline_tests.histories.setups import SETUPS, history_of_setup
from cdc_pipeline_tests.histories.strategies import history_of_seed
from cdc_pipeline_tests.histories.upstream import DELETE, INSERT, UPDATE


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


def _is_shown(left_out: Message, later: Sequence[Message]) -> bool:
    """Whether the next change of the row says that the former value of a column is one that `left_out` wrote."""
    changes = [change for message in (left_out, *later) for change in message.rows]
    change, table = changes[0], changes[0].table
    if left_out.op != UPDATE or len(left_out.rows) > 1 or table.keyless or change.changes_key:
        return False
    assert change.before is not None
    assert change.after is not None
    for message in later:
        for number, row in enumerate(message.rows):
            images = [image for image in (row.before, row.after) if row.table == table and image is not None]
            if any(table.key_of(image) == table.key_of(change.after) for image in images):
                # Canal may omit entries of `old`, and columns that are NULL
                olds = message.body["data" if row.op == DELETE else "old"] or []
                sent = olds[number] if len(olds) == len(message.rows) and row.op != INSERT else {}
                return any(change.before[name] != change.after[name] for name in sent)
    return False


def _without_an_update(mode: str, seed: int) -> tuple[History, TableName]:
    """A history from which an UPDATE was left out, and its table. A later change of the row shows it."""
    history = history_of_seed(seed, transactions=30, settings=Settings(mode, slices=2, seed=seed))
    messages, choices = history.messages, Seeded(seed)
    shown = [one for at, one in enumerate(messages) if one.kind == "row" and _is_shown(one, messages[at + 1 :])]
    left_out = choices.pick(shown)
    kept = [one for one in messages if one is not left_out]
    timeline = [sent for sent in history.timeline if sent.message is not left_out]
    assert len(timeline) == len(history.timeline) - 1
    faulty = history_as_sent(history.name, history.settings, history.upstream, kept, timeline, choices)
    return faulty, TableName(*left_out.rows[0].table.full_name)


@pytest.mark.parametrize("count", [1, pytest.param(12, marks=pytest.mark.long)])
@pytest.mark.parametrize("mode", ["extension", "canal"])
def test_a_change_left_out_is_named(spark: SparkSession, tmp_path: Path, mode: str, count: int) -> None:
    faulty = [_without_an_update(mode, SEED + number) for number in range(count)]
    ingested = VerifiedHistories(spark, tmp_path, combined([history for history, _ in faulty]), RandomKiller(SEED, 0))
    ingested.ingest_files()
    verifier = Verifier(Lake(spark, ingested.paths), CutSettings("UTC"), print)
    assert set(verifier.contradicted()) == {table for _, table in faulty}


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
