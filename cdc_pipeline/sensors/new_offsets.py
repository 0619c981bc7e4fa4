"""The sensor `<pipeline>_new_offsets`: requests `<pipeline>_ingest` or `<pipeline>_follow` when the source has new records.

It compares metadata of the source (offsets of a broker, names of files) with the newest commit of the raw table, without
Spark. Requesting the same range twice is safe, because the offsets are committed with the data. The cursor stores only
since when records wait for `minimum_records`.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus, DefaultSensorStatus, RunRecord, RunsFilter

from cdc_pipeline.assets.asset_events import AssetEvent
from cdc_pipeline.assets.failures import redact_secrets
from cdc_pipeline.assets.nodes import RAW, table_key
from cdc_pipeline.assets.raw import POSITIONS, due_observations
from cdc_pipeline.pipeline import PIPELINE_TAG, Pipeline
from cdc_pipeline.sources.raw_batches import newest_note
from cdc_pipeline.sources.source import NewRecords, NoNewRecords

RANGE_TAG, RANGE_ID_TAG = "cdc/range", "cdc/range_id"
_UNFINISHED = [
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]
_LONGEST_TAG = 250
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 30, 900
"""Exponential backoff after failed runs."""


@dataclass(frozen=True)
class SensorTiming:
    """When the sensor evaluates, and when it requests a run."""

    interval_seconds: int = 30
    minimum_records: int = 1
    maximum_wait_seconds: int = 300
    """Records that wait for this time start a run even if they are fewer than `minimum_records`."""


def new_offsets_sensor(
    pipeline: Pipeline, job: Any, timing: SensorTiming, *, running: bool = False, follows: bool = False
) -> dg.SensorDefinition:
    """The sensor of a pipeline. `job`: the job that it requests; `follows`: whether its runs find new records themselves."""

    @dg.sensor(
        name=f"{pipeline.name}_new_offsets",
        job=job,
        minimum_interval_seconds=timing.interval_seconds,
        default_status=DefaultSensorStatus.RUNNING if running else DefaultSensorStatus.STOPPED,
        description=f"Requests {job.name} when {pipeline.source.location} has new records.",
    )
    def new_offsets(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        observed: list[AssetEvent] = []
        with redact_secrets(pipeline.source.secrets):
            result = _evaluate(pipeline, timing, context.instance, context.cursor, observed, follows=follows)
        found = dg.SensorResult(skip_reason=result) if isinstance(result, dg.SkipReason) else result
        return found._replace(asset_events=observed)

    return new_offsets


def _evaluate(
    pipeline: Pipeline,
    timing: SensorTiming,
    instance: DagsterInstance,
    cursor: str | None,
    observed: list[AssetEvent],
    *,
    follows: bool,
) -> dg.SensorResult | dg.SkipReason:
    """A run request, or the reason to skip. Appends observations of the source to `observed`."""
    unfinished = _runs(instance, {PIPELINE_TAG: pipeline.name}, _UNFINISHED)
    if unfinished:
        run = unfinished[0].dagster_run
        return dg.SkipReason(f"run {run.run_id} of {run.job_name} is not finished yet ({run.status.value.lower()})")
    note = _progress_note(pipeline, instance)
    found = pipeline.source.find_new_records(note)
    observed += due_observations(pipeline, instance, found)
    if isinstance(found, NoNewRecords):
        return _retry(pipeline, instance, note) or dg.SkipReason(found.reason)
    requested = _runs(instance, {PIPELINE_TAG: pipeline.name, RANGE_ID_TAG: found.range_id})
    if reason := _already_ingested(found, note, requested) or _backoff(_runs(instance, {PIPELINE_TAG: pipeline.name})):
        return dg.SkipReason(reason)
    since = _waiting_since(found, cursor)
    waited = time.time() - since
    if found.records < timing.minimum_records and waited < timing.maximum_wait_seconds:
        reason = (
            f"{found.summary}; fewer than {timing.minimum_records} (minimum_records), waiting for {waited:.0f} s of "
            f"{timing.maximum_wait_seconds} s"
        )
        return dg.SensorResult(skip_reason=reason, cursor=json.dumps({"start_id": found.start_id, "since": since}))
    config = {} if follows else _run_config(pipeline, found)
    return dg.SensorResult(run_requests=[_run_request(found, requested, config)])


def _retry(
    pipeline: Pipeline, instance: DagsterInstance, note: Mapping[str, Any] | None
) -> dg.SensorResult | dg.SkipReason | None:
    """Retry of an unsuccessful run while the source has no new records; None if the last run succeeded.

    Records that the run has already ingested are not new, so without a retry the mirrors of a quiet source would miss them.
    """
    runs = _runs(instance, {PIPELINE_TAG: pipeline.name})
    jobs = {f"{pipeline.name}_ingest", f"{pipeline.name}_follow"}
    ingest = next((run.dagster_run for run in runs if run.dagster_run.job_name in jobs), None)
    if note is None or (runs and (ingest is None or ingest.is_success)):
        return None
    if reason := _backoff(runs):
        return dg.SkipReason(reason)
    if ingest is not None:
        range_tag, key = f"retry of run {ingest.run_id} ({ingest.status.value.lower()})", f"after-{ingest.run_id}"
    else:  # Dagster's storage was replaced since the runs that wrote the lake
        range_tag, key = "possible unfinished run unknown to Dagster", f"after-batch-{note.get('batch')}"
    return dg.SensorResult(run_requests=[dg.RunRequest(run_key=key, tags={RANGE_TAG: range_tag})])


def _runs(
    instance: DagsterInstance, tags: Mapping[str, str], statuses: list[DagsterRunStatus] | None = None
) -> list[RunRecord]:
    """The newest 20 runs with these tags, newest first."""
    return list(instance.get_run_records(RunsFilter(tags=dict(tags), statuses=statuses), limit=20))


def _progress_note(pipeline: Pipeline, instance: DagsterInstance) -> Mapping[str, Any] | None:
    """Offsets in the lake: from its newest commit; for a lake without `has_files`, from the last materialization."""
    if pipeline.paths.has_files:
        return newest_note(pipeline.paths)
    event = instance.get_latest_materialization_event(table_key(pipeline, RAW))
    materialization = None if event is None else event.asset_materialization
    entry = None if materialization is None else materialization.metadata.get(POSITIONS)
    return entry.value if isinstance(entry, dg.JsonMetadataValue) and isinstance(entry.value, dict) else None


def _already_ingested(found: NewRecords, note: Mapping[str, Any] | None, requested: list[RunRecord]) -> str | None:
    """Reason to skip a range that a run has ingested although the source still differs: its files were deleted."""
    if note is None or found.until or not requested:
        return None
    run = requested[0].dagster_run
    return f"no new records: run {run.run_id} ingested this range" if run.is_success else None


def _backoff(runs: list[RunRecord]) -> str | None:
    """Reason to skip while the backoff after unsuccessful runs lasts."""
    failed = list(itertools.takewhile(lambda run: not run.dagster_run.is_success, runs))
    if not failed:
        return None
    last = failed[0]
    pause = min(_FIRST_PAUSE_SECONDS * 2 ** (len(failed) - 1), _LONGEST_PAUSE_SECONDS)
    remaining = (last.end_time or last.update_timestamp.timestamp()) + pause - time.time()
    if remaining <= 0:
        return None
    run = last.dagster_run
    return f"run {run.run_id} ended with status {run.status.value.lower()}; retry in {remaining:.0f} s"


def _waiting_since(found: NewRecords, cursor: str | None) -> float:
    """When the sensor first saw new records from this start offset, in seconds since 1970."""
    try:
        stored = json.loads(cursor or "null")
        if stored["start_id"] == found.start_id:
            return float(stored["since"])
    except (ValueError, TypeError, KeyError):
        pass
    return time.time()


def _run_config(pipeline: Pipeline, found: NewRecords) -> dict[str, Any]:
    """The configuration of a run of `<pipeline>_ingest` that reads these records."""
    op = "__".join(table_key(pipeline.untranslated, RAW).path)
    return {"ops": {op: {"config": {"until": {topic: dict(offsets) for topic, offsets in found.until.items()}}}}}


def _run_request(found: NewRecords, requested: list[RunRecord], config: Mapping[str, Any]) -> dg.RunRequest:
    """The request of the range after the runs in `requested`, newest first, which did not ingest it."""
    last = f"-after-{requested[0].dagster_run.run_id}" if requested else ""
    return dg.RunRequest(
        # Dagster launches a run key only once, so each retry of the range needs another key
        run_key=f"{found.range_id}{last}",
        run_config=config,
        tags={RANGE_TAG: found.summary[:_LONGEST_TAG], RANGE_ID_TAG: found.range_id},
    )
