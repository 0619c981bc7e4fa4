"""The checks of streams."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.checks import streams
from cdc_pipeline.checks.streams import (
    NO_LIMITS,
    FreshnessLimits,
    fresh_result,
    lag,
    mirrors_to_confirm,
    open_transactions_result,
    watermarks_result,
)
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import StreamProgress
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, MirrorEntry, TableCounts
from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import Position
from cdc_pipeline.sources.source import Intake, OpenTransaction
from cdc_pipeline_tests.support.messages import EPOCH_MS, tso

_BATCH = (
    "batch_id LONG, records LONG, exact_ts BOOLEAN, ended ARRAY<STRING>, row_changes LONG, "
    "offsets ARRAY<STRUCT<topic: STRING, `partition`: INT>>, heartbeats MAP<STRING, BIGINT>, "
    "oldest_at BIGINT, newest_at BIGINT"
)
_WATERMARK = "batch_id LONG, topic STRING, `partition` INT, `offset` LONG, watermark_ts LONG"


def _checked(spark: SparkSession, paths: LakePaths, batch: int, *marks: tuple[int, int, int]) -> dg.AssetCheckResult:
    """Writes a batch with these watermarks (partition, offset, step) to the tables of the decoder."""
    rows = [(batch, "t", partition, offset, tso(step)) for partition, offset, step in marks]
    batches = [(batch, len(marks), True, None, 0, [("t", 0), ("t", 1)], {}, None, None)]
    for table, found, schema in (("watermarks", rows, _WATERMARK), ("batches", batches, _BATCH)):
        spark.createDataFrame(found, schema).write.format("delta").mode("append").save(paths.table(table))
    return watermarks_result(Lake(spark, paths), [batch], len(marks), dg.AssetKey("watermarks"))


@pytest.mark.parametrize("few", [20_000, 0], ids=["in Python", "with Spark"])
def test_regressions_and_silent_partitions(
    spark: SparkSession, paths: LakePaths, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(streams, "_FEW", few)
    found = _checked(spark, paths, 1, (0, 0, 3), (0, 1, 5))
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert set(found.metadata) == {"t/1", "watermark_lag_seconds"}
    assert "no watermark received" in str(found.metadata["t/1"].value)

    # first below the last watermark of the previous batch, then ten minutes ahead of the other partition
    found = _checked(spark, paths, 2, (0, 2, 4), (0, 3, 700), (1, 0, 99))
    assert set(found.metadata) == {"t/0@2", "t/1", "watermark_lag_seconds"}
    assert f"regressed by 1.0 s to {tso(4)}" in str(found.metadata["t/0@2"].value)
    assert "lags by 601 s" in str(found.metadata["t/1"].value)
    assert found.metadata["watermark_lag_seconds"].value == 601.0
    assert found.description is not None
    assert found.description.startswith("`t/0@2: the watermark regressed")

    found = _checked(spark, paths, 3, (1, 1, 700))
    assert (found.passed, found.description) == (True, None)


_START = datetime.fromtimestamp(EPOCH_MS / 1000, timezone.utc)
_LIMITS = FreshnessLimits(timedelta(minutes=5), timedelta(minutes=15))
_WARN, _ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR


def _report(resolved_tso: int | None, newest_tso: int | None = None) -> CutReport:
    exact = resolved_tso is not None
    return CutReport(True, 1, resolved_tso, StreamProgress(1, exact, resolved_tso, "t/2", (), newest_tso), ())


@pytest.mark.parametrize(
    ("minutes", "limits", "outcome"),
    [
        (4, _LIMITS, (True, _WARN)),
        (5, _LIMITS, (False, _WARN)),
        (15, _LIMITS, (False, _ERROR)),
        (15, FreshnessLimits(warn=timedelta(minutes=5)), (False, _WARN)),
        (15, FreshnessLimits(fail=timedelta(minutes=16)), (True, _WARN)),
    ],
)
def test_age_of_the_cut(minutes: int, limits: FreshnessLimits, outcome: tuple[bool, dg.AssetCheckSeverity]) -> None:
    now = _START + timedelta(seconds=7, minutes=minutes)
    found = fresh_result(_report(tso(7), tso(9)), limits, dg.AssetKey("cuts"), now)
    assert (found.passed, found.severity) == outcome
    assert found.metadata["lag_seconds"].value == minutes * 60.0
    assert found.passed == (found.description is None)
    if found.description is not None:
        assert f"lag by 0:{minutes:02}:00" in found.description
        assert "held by t/2, whose newest watermark is 2.0 s behind" in found.description


@pytest.mark.parametrize(
    ("limits", "severity"), [(_LIMITS, _ERROR), (FreshnessLimits(timedelta(minutes=5)), _WARN), (NO_LIMITS, _WARN)]
)
def test_a_cut_later_than_the_clock_is_not_fresh(limits: FreshnessLimits, severity: dg.AssetCheckSeverity) -> None:
    found = fresh_result(_report(tso(7)), limits, dg.AssetKey("cuts"), _START)
    assert (found.passed, found.severity, found.metadata["lag_seconds"].value) == (False, severity, -7.0)
    assert "the cut is 0:00:07 later than the clock" in (found.description or "")


def test_no_partition_is_named_if_all_wait_for_the_next_watermark() -> None:
    found = fresh_result(_report(tso(7), tso(7)), _LIMITS, dg.AssetKey("cuts"))
    assert ": no partition has a watermark above the resolved TSO yet`. " in (found.description or "")


_NAMES = [TableName("db", f"t{number}") for number in range(30)]


def _cut(*changed: TableName, held: tuple[TableName, ...] = (), published: bool = True) -> CutReport:
    mirrors = tuple(MirrorEntry(name, name.table, "/lake", 1, 1, 2, ()) for name in _NAMES)
    counts = {name: TableCounts() for name in changed}
    waiting = tuple(HeldTable(name, Position("t", 0, 1), 1) for name in held)
    return replace(_report(tso(7)), published=published, mirrors=mirrors, changed=counts, held=waiting)


def test_each_quiet_mirror_is_confirmed_once_in_a_third_of_the_lower_limit() -> None:
    report, minute = _cut(_NAMES[0], held=(_NAMES[1],)), timedelta(minutes=1)
    limits = FreshnessLimits(timedelta(minutes=30), timedelta(minutes=60))
    by_cut = [mirrors_to_confirm(report, limits, _START + n * minute, _START + (n + 1) * minute) for n in range(10)]
    # a cut confirms few, so that its costs do not grow with the number of quiet mirrors
    assert sorted(name for found in by_cut for name in found) == sorted(_NAMES[2:])
    assert max(map(len, by_cut)) < 10
    # after a pause all at once, each once
    assert len(mirrors_to_confirm(report, limits, _START, _START + timedelta(days=1))) == 28


def test_no_mirror_is_confirmed_without_a_policy_a_cut_before_or_a_new_cut() -> None:
    later = _START + timedelta(days=1)
    assert mirrors_to_confirm(_cut(), FreshnessLimits(warn=timedelta(minutes=5)), _START, later) == []
    assert mirrors_to_confirm(_cut(), _LIMITS, None, later) == []
    assert mirrors_to_confirm(_cut(published=False), _LIMITS, _START, later) == []


def test_lag_is_unknown_without_tsos() -> None:
    assert lag(_report(None)) is None
    found = fresh_result(_report(None), _LIMITS, dg.AssetKey("cuts"))
    assert (found.passed, found.metadata["lag_seconds"].value) == (True, -1.0)


def _heartbeats(*, exact: bool = False, waiting: tuple[str, ...] = (), **topics: int) -> CutReport:
    """`topics`: topic → second of its newest heartbeat."""
    times = {topic: EPOCH_MS + 1000 * second for topic, second in topics.items()}
    return CutReport(True, 1, None, StreamProgress(1, exact, None, None, waiting, heartbeats=times), ())


def test_without_tsos_the_oldest_newest_heartbeat_counts() -> None:
    now = _START + timedelta(minutes=15, seconds=7)
    found = fresh_result(_heartbeats(quiet=7, busy=300), _LIMITS, dg.AssetKey("cuts"), now)
    assert (found.passed, found.severity, found.metadata["lag_seconds"].value) == (False, _ERROR, 900.0)
    assert "lag by 0:15:00: no heartbeat has arrived in quiet since" in (found.description or "")
    assert fresh_result(_heartbeats(quiet=840, busy=300), _LIMITS, dg.AssetKey("cuts"), now).severity == _WARN
    assert fresh_result(_heartbeats(quiet=840, busy=900), _LIMITS, dg.AssetKey("cuts"), now).passed


def test_heartbeats_are_ignored_while_a_watermark_is_missing() -> None:
    """A TiCDC topic without a watermark beside a DataWorks topic: no cut is published."""
    report = _heartbeats(exact=True, waiting=("t/0",), dataworks=7)
    assert lag(report, _START) is None
    assert report.streams.blocking_reason() == "no watermark has arrived yet in t/0"


def test_daemon_has_the_same_limits() -> None:
    policy = _LIMITS.policy()
    assert policy == dg.FreshnessPolicy.time_window(timedelta(minutes=15), timedelta(minutes=5))
    assert NO_LIMITS.policy() is None
    assert (NO_LIMITS.declared, _LIMITS.declared) == (False, True)


_YOUNG = OpenTransaction("t", 0, 5, 8)
_OLD = OpenTransaction("t", 1, 7, 90, is_overdue=True)
_INTAKE = Intake((), (), (), 0)


@pytest.mark.parametrize(
    ("intake", "named"),
    [
        (_INTAKE, []),
        (replace(_INTAKE, open_transactions=(_YOUNG,)), []),
        (
            replace(_INTAKE, open_transactions=(_YOUNG, _OLD)),
            ["1 partitions", "15 minutes", "t/1: last stable offset 7, end offset 90", "kafka-transactions.sh"],
        ),
        (
            replace(_INTAKE, reads_uncommitted=True),
            ["source.options", "isolation.level", "aborted", "Remove the option"],
        ),
    ],
)
def test_what_the_check_warns_about(intake: Intake, named: list[str]) -> None:
    found = open_transactions_result(intake, dg.AssetKey("raw"))
    assert (found.passed, found.severity) == (not named, dg.AssetCheckSeverity.WARN)
    assert [text for text in named if text not in (found.description or "")] == []
    assert (found.description is None) == (not named)
    assert list(found.metadata) == [f"t/{transaction.partition}" for transaction in intake.open_transactions]
