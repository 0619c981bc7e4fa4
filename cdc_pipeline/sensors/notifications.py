"""The sensor `<pipeline>_notify`: sends alerts through Apprise.

It compares the newest result of each check and the newest run of each job, from Dagster's storage and without Spark, with
its cursor: what each channel has received. A channel that does not take a message keeps its part of the cursor, so that a
later tick compares again. (Dagster's `run_failure_sensor` would skip a run whose message was not sent.)
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote

import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus, DefaultSensorStatus, EventLogEntry, RunsFilter

from cdc_pipeline.checks.records import BALANCE
from cdc_pipeline.checks.results import newest_evaluation
from cdc_pipeline.checks.streams import FRESH, NO_OPEN_TRANSACTIONS, FreshnessLimits
from cdc_pipeline.errors import DeclarationError, LakeError, SourceError, TransientError
from cdc_pipeline.pipeline import PIPELINE_TAG, Pipeline
from cdc_pipeline.sensors.alerts import Changes, Condition, Known, compare, message, reasons
from cdc_pipeline.stored_json import StoredJson

if TYPE_CHECKING:  # it is an extra
    import apprise

RUN_FAILED = "run_failed"
_WHOLE = (BALANCE, NO_OPEN_TRANSACTIONS)
"""Checks whose metadata has more than what does not pass. Of other checks, each text in it is a condition."""
_REPORTED_ATTEMPTS = 3
"""A run that follows its source repeats errors; the check `no_failed_attempts` is reported from this attempt on."""
_OWN_ERRORS = {kind.__name__ for kind in (DeclarationError, LakeError, SourceError, TransientError)}
_INTERVAL_SECONDS, _LONGEST_PAUSE_SECONDS = 30, 900
"""A channel that does not take a message gets it again in the next tick, then after pauses that double."""
_SEND_SECONDS = 20.0
"""Time limit of a message. Dagster limits a sensor to 60 s (DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS)."""


@dataclass(frozen=True)
class _Channel:
    """Part of the cursor, in the order of the URLs."""

    known: dict[str, dict[str, Known]] = field(default_factory=dict)
    failures: int = 0
    """Messages in a row that it did not take."""
    retry_at: float = 0


_CURSOR = StoredJson(tuple[_Channel, ...])


def notify_sensor(
    pipeline: Pipeline,
    checks: Sequence[dg.AssetCheckKey],
    jobs: Sequence[str],
    limits: FreshnessLimits,
    urls: Sequence[str],
    events: Sequence[str],
    ui_url: str = "",
) -> dg.SensorDefinition:
    """The sensor of a pipeline. `checks`, `jobs`: all of its; `limits`: of the lag; `urls`: of Apprise, secrets; `events`:
    names of checks, and `RUN_FAILED`; `ui_url`: address of Dagster's UI without a slash at its end."""

    @dg.sensor(
        name=f"{pipeline.name}_notify",
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description=f"Sends alerts to {len(urls)} channel(s): {', '.join(events)}.",
    )
    def notify(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        now, instance = time.time(), context.instance
        found = {
            f"{key.asset_key.path[-1]} {key.name}": _observe(instance, key, limits, now)
            for key in checks
            if key.name in events
        }
        if RUN_FAILED in events:
            found |= {f"run of {job}": _newest_run(instance, pipeline, job) for job in jobs}
        observed = {source: conditions for source, conditions in found.items() if conditions is not None}

        def report(url: str, channel: _Channel) -> tuple[_Channel, str]:
            if now < channel.retry_at:
                return channel, ""
            known, changes = compare(channel.known, observed, now)
            if changes == Changes():
                return _Channel(known), ""
            error = _send(url, *message(pipeline.name, changes, ui_url), changes)
            if not error:
                return _Channel(known), f"sent {len(changes.began)} new and {len(changes.ended)} ended"
            pause = min(_INTERVAL_SECONDS * (2**channel.failures - 1), _LONGEST_PAUSE_SECONDS)
            failures = min(channel.failures + 1, 10)
            return replace(channel, failures=failures, retry_at=now + pause), f"message not taken: {error}"

        with ThreadPoolExecutor(len(urls)) as pool:
            results = list(pool.map(report, urls, _channels(context.cursor, len(urls))))
        lines = [f"notify.urls, number {number}: {done}" for number, (_, done) in enumerate(results, 1) if done]
        if lines and any(channel.failures for channel, _ in results):
            context.log.warning("; ".join(lines))
        cursor = _CURSOR.to_json(tuple(channel for channel, _ in results))
        return dg.SensorResult(skip_reason="; ".join(lines) or "nothing to report", cursor=cursor)

    return notify


def _channels(cursor: str | None, count: int) -> list[_Channel]:
    """The channels in a cursor. One that is new, or whose cursor is damaged, knows nothing."""
    try:
        known = _CURSOR.from_json(cursor) if cursor else ()
    except LakeError:
        known = ()
    return [*known, *[_Channel()] * count][:count]


def _observe(
    instance: DagsterInstance, key: dg.AssetCheckKey, limits: FreshnessLimits, now: float
) -> dict[str, Condition] | None:
    """The conditions of a check by its newest result; None without one."""
    page = f"assets/{quote('/'.join(key.asset_key.path))}?view=checks&checkDetail={key.name}"
    if key.name == FRESH:
        event = instance.get_latest_materialization_event(key.asset_key) if limits.declared else None
        return None if event is None else _lag(event, limits, now, page)
    newest = newest_evaluation(instance, key)
    result = None if newest is None else newest.asset_check_evaluation
    return None if result is None else _conditions(result, page)


def _conditions(result: dg.AssetCheckEvaluation, page: str) -> dict[str, Condition]:
    attempts = result.metadata.get("failed_attempts")
    if result.passed or (isinstance(attempts, dg.IntMetadataValue) and (attempts.value or 0) < _REPORTED_ATTEMPTS):
        return {}
    check, is_error = result.check_name, result.severity == dg.AssetCheckSeverity.ERROR
    found = {
        name: Condition(entry.value, page, reasons(check, entry.value), is_error)
        for name, entry in result.metadata.items()
        if isinstance(entry.value, str) and name != "checked" and check not in _WHOLE
    }
    return found or {"": Condition(result.description or "does not pass", page, is_error=is_error)}


def _lag(event: EventLogEntry, limits: FreshnessLimits, now: float, page: str) -> dict[str, Condition]:
    """How far the mirrors are behind the clock at `now`, whether or not a run has happened since the materialization.

    Nothing without TSOs and heartbeats.
    """
    metadata = {} if event.asset_materialization is None else event.asset_materialization.metadata
    behind, slowest = metadata.get("lag_seconds"), metadata.get("slowest_partition")
    if behind is None or not isinstance(behind.value, (int, float)):
        return {}
    age = timedelta(seconds=int(behind.value + max(0.0, now - event.timestamp)))
    fields = {"warn_minutes": limits.warn, "fail_minutes": limits.fail}
    reached = [name for name, limit in fields.items() if limit is not None and not timedelta() <= age < limit]
    if not reached:
        return {}
    waits = f"; the slowest partition was {slowest.value}" if slowest is not None else ""
    lag = f"the mirrors are {age} behind upstream" if age >= timedelta() else f"the cut is {-age} later than the clock"
    text = f"{lag} (limit: freshness.{reached[-1]}){waits}"
    return {"": Condition(text, page, tuple(range(len(reached))), reached[-1] == "fail_minutes")}


def _newest_run(instance: DagsterInstance, pipeline: Pipeline, job: str) -> dict[str, Condition] | None:
    """The failure of the newest run of a job that ended; None if none did."""
    ended = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE]
    runs = instance.get_runs(RunsFilter(job_name=job, tags={PIPELINE_TAG: pipeline.name}, statuses=ended), limit=1)
    if not runs:
        return None
    run = runs[0]
    return {} if run.is_success else {"": Condition(_cause(instance, run.run_id), f"runs/{run.run_id}", is_error=True)}


def _cause(instance: DagsterInstance, run_id: str) -> str:
    """Why a run failed: the text of errors of this package, and only the class of others, whose text may quote values."""
    kinds = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE}
    entries = instance.get_records_for_run(run_id, of_type=kinds, limit=1).records
    event = entries[0].event_log_entry.dagster_event if entries else None
    if event is None or not event.is_step_failure:
        # without a failed step: Dagster's monitoring has ended the run
        return (event and event.message) or "failed"
    failure = event.step_failure_data
    if failure.user_failure_data is not None and failure.user_failure_data.description:
        return f"{event.step_key}: {failure.user_failure_data.description}"
    error, kind = failure.error, "failed"
    while error is not None:
        kind = error.cls_name or kind
        if kind in _OWN_ERRORS:
            return f"{event.step_key}: {error.message.partition(': ')[2]}"
        error = error.cause
    return f"{event.step_key}: {kind}"


def to_service(url: str) -> apprise.NotifyBase | None:
    """The service of an Apprise URL; None if it is not one. Raises ValueError if Apprise is not installed."""
    try:
        import apprise
    except ImportError:
        raise ValueError("needs the package apprise: run pip install 'cdc_pipeline[notify]'") from None
    # its log, and at level DEBUG that of its HTTP client, have parts of URLs
    logger, client = logging.getLogger("apprise"), logging.getLogger("urllib3")
    logger.propagate, logger.handlers = False, logger.handlers or [logging.NullHandler()]
    client.setLevel(max(client.getEffectiveLevel(), logging.INFO))
    # a redirected POST would become a GET without the message, and count as delivered
    asset = apprise.AppriseAsset(app_id="cdc_pipeline", app_desc="cdc_pipeline", http_redirects=False)
    return apprise.Apprise.instantiate(str(url), asset=asset)


def _send(url: str, title: str, text: str, changes: Changes) -> str:
    """Why the message was not delivered, without any part of the URL; empty if it was."""
    try:
        from apprise import Apprise, NotifyFormat, NotifyType

        is_error = any(condition.is_error for _, condition in changes.began)
        kind = NotifyType.FAILURE if is_error else NotifyType.WARNING if changes.began else NotifyType.SUCCESS
        service = to_service(url)
        assert service is not None  # as at load
        result = Apprise([service]).notify(text, title, kind, body_format=NotifyFormat.TEXT, timeout=_SEND_SECONDS)
    except Exception as error:  # its text may have the URL. A bug in a plugin must not hold up the other channels
        return type(error).__name__
    status = re.search(r"error=([0-9]{3})\b", " ".join(entry.message for entry in result.logs()))
    reason = f"HTTP status {status[1]}" if status else result.status.name.lower()
    return "" if result else f"{service.service_name}, {reason}"
