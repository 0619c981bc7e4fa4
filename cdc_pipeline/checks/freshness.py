"""The check `fresh`: compares the lag of the newest cut with the limits of the field `freshness`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import dagster as dg

from cdc_pipeline.checks.markdown import check_result

if TYPE_CHECKING:
    from cdc_pipeline.mirrors.cuts.cut_report import CutReport

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
