"""Streams of a topic per table, which begins and ends with it, and of tables whose rows foreign keys change.

To run other histories: CDC_HISTORIES=40 CDC_HISTORY_SEED=7000 make test-all TEST_FLAGS="-k many_topics or many_families".
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_report import published_entries
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.histories.combined import combined
from cdc_pipeline_tests.histories.families import family_history
from cdc_pipeline_tests.histories.fold import folded
from cdc_pipeline_tests.histories.history import History
from cdc_pipeline_tests.histories.ingested import SEED, IngestedHistories, RandomKiller
from cdc_pipeline_tests.histories.setups import TOPIC_PER_TABLE, TSO_MODES, history_of_setup
from cdc_pipeline_tests.histories.shapes import State
from cdc_pipeline_tests.histories.upstream import END_TSO

# CDC_HISTORIES histories of each kind, six per lake
_A_LAKE = 6
_FIRST = range(SEED + 11_000, SEED + 11_000 + int(os.environ.get("CDC_HISTORIES", "12")), _A_LAKE)


class TopicHistories(IngestedHistories):
    def truth_after(self, number: int) -> State | None:
        """The tables at the TSO that the mirrors have reached: after the last file that is the last one of all."""
        reached = published_cut(Lake(self.spark, self.paths)).resolved_tso
        if number == len(self.histories.slices) - 1 and reached != END_TSO:
            self.wrong.append(f"the mirrors stand at {reached}")
        return None if reached is None else self.histories.state_at(reached - 1)


def _ended(history: History) -> dict[str, list[str]]:
    """The topics that ended, each with the kinds of its records."""
    lasting = {record.topic for record in history.slices[-1].records}
    kinds: dict[str, list[str]] = defaultdict(list)
    for record in history.records:
        if record.topic not in lasting:
            kinds[record.topic].append(record.kind)
    return kinds


def test_the_model_of_topics() -> None:
    found: Counter[str] = Counter()
    for seed in range(60):
        history = history_of_setup(TOPIC_PER_TABLE, seed, seed)
        for kinds in _ended(history).values():
            found["without a watermark"] += "watermark" not in kinds
            found[f"last record: {kinds[-1]}"] += 1
        removed = {message.commit_ts for message in history.messages if message.op == "ERASE"}
        lasting = {record.topic for record in history.slices[-1].records}
        found["began again"] += sum(one.topic in lasting and one.commit_ts in removed for one in history.records)
    names = ("without a watermark", "last record: ddl", "last record: watermark", "began again")
    assert min(found[name] for name in names) > 2, found


def _check_topics(
    spark: SparkSession, folder: Path, counted: Callable[[str, int], None], first: int, count: int, transactions: int
) -> None:
    histories = [
        history_of_setup(TOPIC_PER_TABLE, first + number, number, transactions=transactions) for number in range(count)
    ]
    ingested = TopicHistories(spark, folder, combined(histories), RandomKiller(first, 0.01))
    ingested.ingest_files()
    counted("topics that ended", sum(len(_ended(history)) for history in histories))
    assert [*ingested.wrong, *ingested.rebuild_differences()] == [], ingested.histories


def test_topics_that_end(spark: SparkSession, tmp_path: Path, counted: Callable[[str, int], None]) -> None:
    _check_topics(spark, tmp_path, counted, SEED, 1, 8)


@pytest.mark.long
@pytest.mark.parametrize("first", _FIRST)
def test_many_topics(spark: SparkSession, tmp_path: Path, counted: Callable[[str, int], None], first: int) -> None:
    _check_topics(spark, tmp_path, counted, first, _A_LAKE, 15)


# ---- foreign keys

_GAP = "may lack row changes of the foreign key"
# mode, and whether the stream has what foreign keys change
_TIME = (("canal", False), ("canal", True), ("dataworks", False), ("default", True), ("canal", False), ("canal", True))


class FamilyHistories(IngestedHistories):
    doubtful_gaps = (*IngestedHistories.doubtful_gaps, _GAP)


@pytest.mark.parametrize("mode", ["canal", "dataworks", "default"])
def test_the_model_of_families(mode: str) -> None:
    lacking = 0
    for seed in range(40):
        history, none = family_history(seed, mode, logged=True, ambiguous=False)
        assert (folded(mode, history.records, None), none) == (history.final_truth(), set())
        lacking += len(family_history(seed, mode, logged=False)[1])
    assert lacking > 20


def _check_families(
    spark: SparkSession,
    folder: Path,
    counted: Callable[[str, int], None],
    first: int,
    encoders: tuple[tuple[str, bool], ...],
) -> None:
    """A table whose stream lacks changes equals the model or has a gap; any other one equals it and has none."""
    found = [family_history(first + number, mode, logged=logged) for number, (mode, logged) in enumerate(encoders)]
    ingested = FamilyHistories(spark, folder, combined([history for history, _ in found]), RandomKiller(first, 0.01))
    ingested.ingest_files()
    entries = published_entries(published_cut(Lake(spark, ingested.paths)), ingested.paths)
    flagged = {entry.name for entry in entries if any(_GAP in gap for gap in entry.gaps)}
    lacking = {TableName(*name) for _, names in found for name in names}
    counted("tables that lack changes of foreign keys", len(lacking))
    counted("tables with a gap of a foreign key", len(flagged))
    assert [*ingested.wrong, *(f"{name} lacks nothing" for name in flagged - lacking)] == [], ingested.histories


def test_families(spark: SparkSession, tmp_path: Path, counted: Callable[[str, int], None]) -> None:
    _check_families(spark, tmp_path, counted, SEED, _TIME[:2])


@pytest.mark.long
@pytest.mark.parametrize("first", _FIRST)
@pytest.mark.parametrize("encoders", [_TIME, tuple((mode, True) for mode in TSO_MODES)], ids=["time", "tso"])
def test_many_families(
    spark: SparkSession,
    tmp_path: Path,
    counted: Callable[[str, int], None],
    encoders: tuple[tuple[str, bool], ...],
    first: int,
) -> None:
    _check_families(spark, tmp_path, counted, first, encoders)
