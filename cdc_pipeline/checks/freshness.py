"""How old the newest published cut is, held against what the pipeline's file allows (`freshness`)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    from cdc_pipeline.mirrors.cuts.cut_report import CutReport

FRESH = "fresh"


@dataclass(frozen=True)
class FreshnessLimits:
    """Ages of the resolved TSO: from `warn` on a check warns, from `fail` on it fails. None: no such limit."""

    warn: timedelta | None = None
    fail: timedelta | None = None

    @property
    def declared(self) -> bool:
        return self.warn is not None or self.fail is not None

    def policy(self) -> dg.FreshnessPolicy | None:
        """The same for runs that do not come at all, which the daemon looks at. None where there is no `fail`: Dagster's
        policies need one."""
        return None if self.fail is None else dg.FreshnessPolicy.time_window(self.fail, self.warn)


NO_LIMITS = FreshnessLimits()


def lag(report: CutReport, now: datetime | None = None) -> timedelta | None:
    """How far the mirrors are behind the clock: by their TSO; in streams without any by the newest heartbeat of each topic,
    of which the oldest counts. None where there is neither: nobody can tell."""
    time = report.resolved_time
    if time is None and (heartbeat := report.streams.oldest_heartbeat) is not None:
        time = datetime.fromtimestamp(heartbeat[0] / 1000, timezone.utc)
    return None if time is None else (now or datetime.now(timezone.utc)) - time


def fresh_result(
    report: CutReport, limits: FreshnessLimits, key: dg.AssetKey, now: datetime | None = None
) -> dg.AssetCheckResult:
    """Says how old the mirrors are, what they wait for, and what to do."""
    age = lag(report, now)
    failed = age is not None and limits.fail is not None and age >= limits.fail
    warned = age is not None and limits.warn is not None and age >= limits.warn
    return dg.AssetCheckResult(
        check_name=FRESH,
        asset_key=key,
        passed=not failed and not warned,
        severity=dg.AssetCheckSeverity.ERROR if failed else dg.AssetCheckSeverity.WARN,
        description=None
        if not failed and not warned
        else f"the mirrors are {age} behind: {report.streams.what_holds()}. Look at the changefeed's checkpoint, or at "
        "the synchronization task, and at the sensor and the runs of this pipeline",
        metadata={
            "lag_seconds": -1.0 if age is None else round(age.total_seconds(), 1),
            "warn_after": str(limits.warn),
            "fail_after": str(limits.fail),
        },
    )
