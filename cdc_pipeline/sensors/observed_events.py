"""What the events in Dagster's storage mean for alerts: check results, cuts, lag and ends of runs."""

from __future__ import annotations

import re
import zlib
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import dagster as dg
from dagster._core.events import JobFailureData

from cdc_pipeline.assets.metadata import MOST_STATEMENTS, STATEMENTS
from cdc_pipeline.checks.failed_attempts import NO_FAILED_ATTEMPTS
from cdc_pipeline.errors import DeclarationError, LakeError, SourceError, TransientError
from cdc_pipeline.lake.tables.ddl_history import APPLIED, NOT_APPLIED
from cdc_pipeline.sensors.alerts import Evaluation, Item, Observation, Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dagster import EventLogRecord

    from cdc_pipeline.checks.freshness import FreshnessLimits

LAG = "lag"
"""Key of the observations of the lag."""
_WARN, _FAIL = 1, 2
_REPORTED_ATTEMPTS = 3
"""A run that follows its source repeats errors; the check `no_failed_attempts` is reported from this attempt on."""
_OWN_ERRORS = {kind.__name__ for kind in (DeclarationError, LakeError, SourceError, TransientError)}


def asset_place(key: dg.AssetKey, check: str = "") -> Place:
    path = f"assets/{'/'.join(quote(part, safe='') for part in key.path)}"
    if not check:
        return Place(f"asset {key.to_user_string()}", path)
    return Place(f"asset {key.to_user_string()}, check {check}", f"{path}?view=checks&checkDetail={quote(check)}")


def evaluation(event: dg.EventLogEntry) -> tuple[dg.AssetCheckKey, Evaluation]:
    """The check and its result. The event must be an evaluation of a check."""
    found = event.asset_check_evaluation
    assert found is not None
    key = found.asset_check_key
    place, texts = asset_place(key.asset_key, key.name), _texts(found.metadata)
    return key, Evaluation(key.name, place, event.timestamp, found.passed, found.description or "", texts)


def _texts(metadata: Mapping[str, dg.MetadataValue[Any]]) -> dict[str, str]:
    return {name: str(value.value) for name, value in metadata.items()}


def check_observation(key: str, result: Evaluation) -> Observation:
    failed = not result.passed
    if result.check == NO_FAILED_ATTEMPTS:
        failed = failed and int(result.entries.get("failed_attempts", "0")) >= _REPORTED_ATTEMPTS
    line = f"{result.check}: {result.text}" if result.text else result.check
    return Observation(f"check {key}", "check_failed", result.time, failed, line, result.place)


def ddl_items(place: Place, record: EventLogRecord) -> Iterable[Item]:
    """The statements that a cut has applied or could not apply."""
    materialization = record.asset_materialization
    table = None if materialization is None else materialization.metadata.get(STATEMENTS)
    if not isinstance(table, dg.TableMetadataValue):
        return
    for row in table.records:
        tables, text = row.data["tables"], row.data["statement"] or "statement"
        line = f"{f'{tables}: ' if tables else ''}{text} at {row.data['position']}"
        if row.data["status"] == APPLIED:
            yield Item("ddl_applied", "occurred", line, place, record.timestamp)
        elif row.data["status"] == NOT_APPLIED:
            yield Item("ddl_not_supported", "occurred", f"{line}: {row.data['effect']}", place, record.timestamp)
    if len(table.records) == MOST_STATEMENTS:
        yield Item("ddl_applied", "occurred", "there may be more: see ddl_history", place, record.timestamp)


def lag_observation(
    key: dg.AssetKey, event: dg.EventLogEntry, limits: FreshnessLimits, now: float
) -> Observation | None:
    """How far the mirrors are behind the clock at `now`, whether or not a run has happened since the materialization.

    None without TSOs and heartbeats.
    """
    metadata = {} if event.asset_materialization is None else event.asset_materialization.metadata
    behind, slowest = metadata.get("lag_seconds"), metadata.get("slowest_partition")
    if behind is None or not isinstance(behind.value, (int, float)):
        return None
    age = timedelta(seconds=behind.value + max(0.0, now - event.timestamp))
    level = _FAIL if limits.fail is not None and age >= limits.fail else 0
    level = level or (_WARN if limits.warn is not None and age >= limits.warn else 0)
    field = "fail_minutes" if level == _FAIL else "warn_minutes"
    shown = datetime.fromtimestamp(now, timezone.utc) - age
    line = (
        f"the mirrors show upstream as of {shown:%Y-%m-%d %H:%M:%S} UTC, {timedelta(seconds=int(age.total_seconds()))} ago "
        f"(limit: freshness.{field})"
    )
    held_back = metadata.get("watermark_lag_seconds")
    if slowest is not None and held_back is not None and isinstance(held_back.value, float) and held_back.value > 0:
        line = f"{line}; partition {slowest.value} is {held_back.value:.0f} s behind the newest watermark"
    return Observation(LAG, "lag", now, level > 0, line, asset_place(key), level)


def run_observation(job: str, record: EventLogRecord, failed: bool) -> Observation:
    place = Place(f"run {record.run_id}", f"runs/{record.run_id}")
    line = f"{job}: {_cause(record.event_log_entry.dagster_event)}" if failed else job
    return Observation(f"run {job}", "run_failed", record.timestamp, failed, line, place, cause=_cause_number(line))


def _cause_number(line: str) -> int:
    """Equal for failures that differ only in numbers, ids and names of files."""
    return zlib.crc32(re.sub(r"[0-9a-f-]*[0-9][0-9a-f-]*", "#", line).encode())


def _cause(event: dg.DagsterEvent | None) -> str:
    """Why a run failed: the text of errors of this package, and only the class of others, whose text may quote values."""
    if event is None:
        return "failed"
    # None for a run that Dagster's monitoring has ended
    data = event.event_specific_data
    step = data.first_step_failure_event if isinstance(data, JobFailureData) else None
    if step is None or not step.is_step_failure:
        return event.message or "failed"
    found = step.step_failure_data
    if found.user_failure_data is not None and found.user_failure_data.description:
        return f"{step.step_key}: {found.user_failure_data.description}"
    error, kind = found.error, "failed"
    while error is not None:
        kind = error.cls_name or kind
        if kind in _OWN_ERRORS:
            return f"{step.step_key}: {error.message.partition(': ')[2]}"
        error = error.cause
    return f"{step.step_key}: {kind}"
