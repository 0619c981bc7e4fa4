"""The checks of streams: `watermarks_advance`, `no_lost_offsets`, `fresh` and `no_open_transactions`."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from operator import itemgetter
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from cdc_pipeline.checks.results import check_result
from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.lake.control_tables import read_rows
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.changes.progress import StreamProgress, published_cut, read_progress
from cdc_pipeline.mirrors.cuts.cut_report import CutReport
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import Position, offsets_text
from cdc_pipeline.sources.source import Intake
from cdc_pipeline.spark.small_frames import small_query

WATERMARKS_ADVANCE = "watermarks_advance"
STALLED_MS = 600_000
"""Lag at which a partition is reported. TiCDC sends watermarks to all partitions within seconds of each other."""
_NO_WATERMARK = (
    "no watermark received, so no cut can be published. Check that the changefeed writes this topic and that "
    "enable-tidb-extension is on"
)
_ENDED = (
    "does not limit the resolved TSO: the statement at {} dropped or renamed its last table, and TiCDC sends no more "
    "watermarks to it. It counts again when records come"
)
_SHOWN_REGRESSIONS = 20
_WATERMARKS = "watermarks"
_COLUMNS = ("batch_id", "topic", "partition", "offset", "watermark_ts")
_FEW = 20_000
"""Records up to which the watermarks of a run are compared without a Spark query."""


def watermarks_result(lake: Lake, batches: Sequence[int], count: int, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Warns if a watermark of these batches regresses in its partition, is missing, or lags others by ten minutes.

    `count`: the number of watermarks in these batches. The metadata lists positions with advice, and topics that ended.
    """
    with small_query(lake.spark, 0):
        streams = read_progress(lake, published_cut(lake))
    regressions = _regressions(lake, batches, count) if count else []
    problems = {**dict(regressions[:_SHOWN_REGRESSIONS]), **_lagging_partitions(streams)}
    if len(regressions) > _SHOWN_REGRESSIONS:
        problems["more"] = f"{len(regressions)} regressions in total"
    shown = [f"{at}: {problem}" for at, problem in [*problems.items()][:3]]
    ended = {topic: _ENDED.format(statement) for topic, statement in streams.ended.items()}
    metadata = {**problems, **ended, "watermark_lag_seconds": round(streams.held_back_ms / 1000, 1)}
    return check_result(WATERMARKS_ADVANCE, key, shown, "", metadata)


def _regressions(lake: Lake, batches: Sequence[int], count: int) -> list[tuple[str, str]]:
    """Position and description of each watermark that is lower than the one before it in its partition."""
    # includes the previous batch, to compare the first watermark of each partition
    first, last = min(batches), max(batches)
    before = read_rows(lake, "batches", ("batch_id", "=", first - 1), columns=["records"])
    if count + sum(batch["records"] for batch in before) <= _FEW:
        rows = read_rows(lake, _WATERMARKS, ("batch_id", ">=", first - 1), ("batch_id", "<=", last), columns=_COLUMNS)
        found = _find_locally(rows)
    else:
        found = _find_with_spark(lake.read(_WATERMARKS).where(F.col("batch_id").between(first - 1, last)))
    return [
        (str(Position(row["topic"], row["partition"], row["offset"])), _regression_text(row["watermark_ts"], previous))
        for row, previous in found
        if row["batch_id"] >= first
    ]


def _find_locally(rows: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], int]]:
    """The rows with a lower watermark than the one before, and the one before."""
    in_order = sorted(rows, key=itemgetter("topic", "partition", "offset"))
    return [
        (row, before["watermark_ts"])
        for before, row in pairwise(in_order)
        if (row["topic"], row["partition"]) == (before["topic"], before["partition"])
        and row["watermark_ts"] < before["watermark_ts"]
    ]


def _find_with_spark(recent: DataFrame) -> list[tuple[Mapping[str, Any], int]]:
    """As `_find_locally`, for the many watermarks of a backlog."""
    previous = F.lag("watermark_ts").over(Window.partitionBy("topic", "partition").orderBy("offset"))
    regressed = recent.withColumn("previous", previous).where(F.col("watermark_ts") < F.col("previous"))
    rows = regressed.orderBy("topic", "partition", "offset").collect()
    return [(row.asDict(), row["previous"]) for row in rows]


def _regression_text(watermark: int, previous: int) -> str:
    seconds = ((previous >> TSO_SHIFT) - (watermark >> TSO_SHIFT)) / 1000
    return (
        f"the watermark regressed by {seconds:.1f} s to {watermark}. A restart of the changefeed does this and "
        "sends changes again; they are counted as duplicates or late, and the check no_breach fails if any is new"
    )


def _lagging_partitions(streams: StreamProgress) -> dict[str, str]:
    problems = dict.fromkeys(streams.without_watermark, _NO_WATERMARK)
    if streams.held_by is not None and streams.held_back_ms >= STALLED_MS:
        problems[streams.held_by] = (
            f"its newest watermark lags by {streams.held_back_ms / 1000:.0f} s and delays all mirrors. Check that the "
            "changefeed still writes this partition, or list its topic in source.ended"
        )
    return problems


NO_LOST_OFFSETS = "no_lost_offsets"


def lost_offsets_result(lake: Lake, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Warns if records expired, or their topic was deleted, before they were read. No mirror has a gap for them."""
    batches = read_rows(lake, "batches", ("lost", "longer than", 0), columns=["batch_id", "lost"])
    rows = [{**lost, "batch_id": batch["batch_id"]} for batch in batches for lost in batch["lost"]]
    rows.sort(key=itemgetter("batch_id", "topic", "partition"))
    skipped = {
        f"{row['topic']}/{row['partition']}": f"{offsets_text(row['first'], row['next'])}, skipped in batch "
        f"{row['batch_id']}"
        for row in rows
    }
    return check_result(
        NO_LOST_OFFSETS,
        key,
        [f"{_loss(rows)}, the first in {where}: {offsets}" for where, offsets in [*skipped.items()][:1]],
        "Only a new snapshot of the upstream tables has their changes. Set retention.ms of the topic above the longest "
        "downtime of the pipeline",
        skipped,
    )


def _loss(rows: Sequence[Mapping[str, int]]) -> str:
    expired = sum(row["next"] - row["first"] for row in rows)
    return (
        f"{expired} offsets expired before they were read"
        if expired
        else "a topic was deleted that may have had more records"
    )


FRESH = "fresh"
_AHEAD = (
    "Compare the clocks of this machine and of the upstream. If a watermark is wrong, run the rebuild without tables "
    '(docs/operations.md, "A watermark from the future")'
)
_BEHIND = (
    "Check the checkpoint of the changefeed (or the DataWorks synchronization task), the sensor and runs of this pipeline, "
    "and with Kafka the check no_open_transactions"
)


@dataclass(frozen=True)
class FreshnessLimits:
    """Lag at which the check warns and fails. None: no limit."""

    warn: timedelta | None = None
    fail: timedelta | None = None

    @property
    def declared(self) -> bool:
        return self.warn is not None or self.fail is not None

    def policy(self) -> dg.FreshnessPolicy | None:
        """Dagster's policy with the same limits, which the daemon evaluates even without runs.

        None without `fail`, which Dagster requires.
        """
        return None if self.fail is None else dg.FreshnessPolicy.time_window(self.fail, self.warn)


NO_LIMITS = FreshnessLimits()


def mirrors_to_confirm(
    report: CutReport, limits: FreshnessLimits, since: datetime | None, now: datetime | None = None
) -> list[TableName]:
    """The mirrors that the cut did not change, but whose materialization is to be repeated: Dagster's policy counts the
    time since the last one, and a table without changes is not stale.

    Each mirror has its turn once in a third of the lower limit, so that a cut confirms few. Held and quarantined mirrors
    have none. `since`: time of the cut before.
    """
    if limits.fail is None or since is None or not report.published:
        return []
    period = min(limits.fail, limits.warn or limits.fail).total_seconds() / 3
    others = {entry.name for entry in report.mirrors} - report.changed.keys() - {table.name for table in report.held}

    def turn(name: TableName, at: datetime) -> int:
        return int(at.timestamp() / period + zlib.crc32(str(name).encode()) / 2**32)

    end = now or datetime.now(timezone.utc)
    return sorted(name for name in others if turn(name, since) < turn(name, end))


def lag(report: CutReport, now: datetime | None = None) -> timedelta | None:
    """How far the mirrors are behind the clock; None without TSOs and heartbeats.

    With TSOs, counts from the resolved TSO. Without, from the topic whose newest heartbeat is the oldest.
    """
    heartbeat = report.streams.oldest_heartbeat
    return lag_of(report.resolved_time, None if heartbeat is None else heartbeat[0], now)


def lag_of(resolved_time: datetime | None, heartbeat_ms: int | None, now: datetime | None = None) -> timedelta | None:
    """`lag` of a cut. `heartbeat_ms`: the oldest of the topics' newest heartbeats."""
    time = resolved_time
    if time is None and heartbeat_ms is not None:
        time = datetime.fromtimestamp(heartbeat_ms / 1000, timezone.utc)
    return None if time is None else (now or datetime.now(timezone.utc)) - time


def fresh_result(
    report: CutReport, limits: FreshnessLimits, key: dg.AssetKey, now: datetime | None = None
) -> dg.AssetCheckResult:
    """Fails or warns if the lag reaches a limit or is below zero, which means that a clock is wrong."""
    age = lag(report, now)
    is_ahead = age is not None and age < timedelta()
    failed = age is not None and limits.fail is not None and (is_ahead or age >= limits.fail)
    warned = age is not None and (is_ahead or (limits.warn is not None and age >= limits.warn))
    if is_ahead:
        problem, advice = f"the cut is {-(age or timedelta())} later than the clock", _AHEAD
    else:
        problem, advice = f"the mirrors lag by {age}: {report.streams.blocking_reason()}", _BEHIND
    seconds = -1.0 if age is None else round(age.total_seconds(), 1)
    metadata = {"lag_seconds": seconds, "warn_after": str(limits.warn), "fail_after": str(limits.fail)}
    return check_result(FRESH, key, [problem] if failed or warned else [], advice, metadata, is_error=failed)


NO_OPEN_TRANSACTIONS = "no_open_transactions"
_UNCOMMITTED = (
    "source.options sets isolation.level to read_uncommitted, so the mirrors have rows of aborted and of open transactions. "
    "Remove the option; rows that are already in the lake stay"
)
_SHOWN_PARTITIONS = 200


def open_transactions_result(intake: Intake, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Warns if a transaction holds back a partition for too long, or if uncommitted records are read.

    The metadata has the last stable offset and the end offset of each partition that a transaction holds back.
    """
    held = intake.open_transactions
    overdue = [str(found) for found in held if found.is_overdue]
    problems = [_UNCOMMITTED] if intake.reads_uncommitted else []
    if overdue:
        problems.append(
            f"{len(overdue)} partitions are held back by a transaction that has been open for 15 minutes or more, the first "
            f"is {overdue[0]}. Records from the last stable offset on are read after the transaction ends. Check "
            "its producer; kafka-transactions.sh lists and aborts hanging transactions"
        )
    metadata = {f"{found.topic}/{found.partition}": found.offsets for found in held[:_SHOWN_PARTITIONS]}
    return check_result(NO_OPEN_TRANSACTIONS, key, problems, "", metadata)
