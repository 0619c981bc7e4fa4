"""The sensor `<pipeline>_new_offsets`: asks for a run of `<pipeline>_ingest` when the source has what the lake has not.

It looks at metadata only (offsets of a broker, names of files) and at the note of the lake's newest commit; it never
starts Spark. What it asks for is safe to ask twice: the truth of what is in is committed with the data. So nothing here
is kept but the moment since when few records wait.
"""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster import DagsterRunStatus, DefaultSensorStatus, RunsFilter

from cdc_pipeline.assets.failures import without_secrets
from cdc_pipeline.assets.keys import RAW, table_key
from cdc_pipeline.assets.raw import POSITIONS
from cdc_pipeline.sources.raw_batches import newest_note
from cdc_pipeline.sources.source import News, NoNews

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagster import DagsterInstance, RunRecord

    from cdc_pipeline.pipeline import Pipeline

PIPELINE_TAG, RANGE_TAG, RANGE_ID_TAG = "cdc/pipeline", "cdc/range", "cdc/range_id"
_UNFINISHED = [
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]
_LONGEST_TAG = 250
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 30, 900
"""After a run that failed the next one waits, twice as long each time: what is wrong is rarely cured by a repetition."""


@dataclass(frozen=True)
class SensorTiming:
    """How often the sensor looks, and what is worth a run: so many records, or having waited so long."""

    interval_seconds: int = 30
    minimum_records: int = 1
    maximum_wait_seconds: int = 300


def new_offsets_sensor(
    pipeline: Pipeline, job: Any, timing: SensorTiming, *, running: bool = False
) -> dg.SensorDefinition:
    """The sensor of one pipeline; `job` is what it asks for."""

    @dg.sensor(
        name=f"{pipeline.name}_new_offsets",
        job=job,
        minimum_interval_seconds=timing.interval_seconds,
        default_status=DefaultSensorStatus.RUNNING if running else DefaultSensorStatus.STOPPED,
        description=f"Asks for {pipeline.name}_ingest when {pipeline.source.place} has something new.",
    )
    def new_offsets(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        with without_secrets(pipeline.source.secrets):
            return _asked(pipeline, timing, context.instance, job.name, context.cursor)

    return new_offsets


def _asked(
    pipeline: Pipeline, timing: SensorTiming, instance: DagsterInstance, job_name: str, cursor: str | None
) -> dg.SensorResult | dg.SkipReason:
    """A run that is asked for, or the reason why none is."""
    unfinished = _runs(instance, {PIPELINE_TAG: pipeline.name}, _UNFINISHED)
    if unfinished:
        run = unfinished[0].dagster_run
        return dg.SkipReason(f"run {run.run_id} of {run.job_name} is not finished yet ({run.status.value.lower()})")
    note = _note(pipeline, instance)
    news = pipeline.source.news(note)
    if isinstance(news, NoNews):
        return _unfinished_work(pipeline, instance, job_name, note) or dg.SkipReason(news.reason)
    asked = _runs(instance, {PIPELINE_TAG: pipeline.name, RANGE_ID_TAG: news.range_id})
    if reason := _settled(news, note, asked) or _pausing(_runs(instance, {PIPELINE_TAG: pipeline.name})):
        return dg.SkipReason(reason)
    since = _waiting_since(news, cursor)
    waited = time.time() - since
    if news.records < timing.minimum_records and waited < timing.maximum_wait_seconds:
        reason = (
            f"{news.summary}; fewer than {timing.minimum_records}, and they have waited for {waited:.0f} s of "
            f"{timing.maximum_wait_seconds}"
        )
        return dg.SensorResult(skip_reason=reason, cursor=json.dumps({"start_id": news.start_id, "since": since}))
    return dg.SensorResult(run_requests=[_request(pipeline, news, len(asked) + 1)])


def _unfinished_work(
    pipeline: Pipeline, instance: DagsterInstance, job_name: str, note: Mapping[str, Any] | None
) -> dg.SensorResult | dg.SkipReason | None:
    """Where the source has nothing new: a run that goes on where one ended that did not end well, or why it is not asked for
    yet; None where all was done. What a run has taken in is no news any more, so that the mirrors of a quiet source would
    stay without it.
    """
    runs = _runs(instance, {PIPELINE_TAG: pipeline.name})
    ingest = next((run.dagster_run for run in runs if run.dagster_run.job_name == job_name), None)
    if note is None or (runs and (ingest is None or ingest.is_success)):
        return None
    if reason := _pausing(runs):
        return dg.SkipReason(reason)
    if ingest is not None:
        left, key = f"what run {ingest.run_id} left ({ingest.status.value.lower()})", f"after-{ingest.run_id}"
    else:  # the storage of Dagster is another one than that of the runs which made the lake
        left, key = "what runs may have left that are not known here", f"after-batch-{note.get('batch')}"
    return dg.SensorResult(run_requests=[dg.RunRequest(run_key=key, tags={RANGE_TAG: left})])


def _runs(
    instance: DagsterInstance, tags: Mapping[str, str], statuses: list[DagsterRunStatus] | None = None
) -> list[RunRecord]:
    """Runs of these tags, newest first."""
    return list(instance.get_run_records(RunsFilter(tags=dict(tags), statuses=statuses), limit=20))


def _note(pipeline: Pipeline, instance: DagsterInstance) -> Mapping[str, Any] | None:
    """How far the lake is: what its newest commit says; for a lake that is no local folder, what the last run said."""
    if pipeline.paths.is_local:
        return newest_note(pipeline.paths)
    event = instance.get_latest_materialization_event(table_key(pipeline.name, RAW))
    materialization = None if event is None else event.asset_materialization
    found = None if materialization is None else materialization.metadata.get(POSITIONS)
    return found.value if isinstance(found, dg.JsonMetadataValue) and isinstance(found.value, dict) else None


def _settled(news: News, note: Mapping[str, Any] | None, asked: list[RunRecord]) -> str | None:
    """Why there is nothing left to do though the source is not as the note has it: files that are gone are no news."""
    if note is None or news.until or not asked:
        return None
    run = asked[0].dagster_run
    return f"nothing new: run {run.run_id} has taken in what there is" if run.is_success else None


def _pausing(runs: list[RunRecord]) -> str | None:
    """Why nothing is asked for yet after runs that did not end well."""
    failed = list(itertools.takewhile(lambda run: not run.dagster_run.is_success, runs))
    if not failed:
        return None
    last = failed[0]
    pause = min(_FIRST_PAUSE_SECONDS * 2 ** (len(failed) - 1), _LONGEST_PAUSE_SECONDS)
    left = (last.end_time or last.update_timestamp.timestamp()) + pause - time.time()
    if left <= 0:
        return None
    run = last.dagster_run
    return f"run {run.run_id} ended as {run.status.value.lower()}; it is tried again in {left:.0f} s"


def _waiting_since(news: News, cursor: str | None) -> float:
    """When news that begin where these do were first seen."""
    try:
        found = json.loads(cursor or "null")
        if found["start_id"] == news.start_id:
            return float(found["since"])
    except (ValueError, TypeError, KeyError):
        pass
    return time.time()


def _request(pipeline: Pipeline, news: News, attempt: int) -> dg.RunRequest:
    op = "__".join(table_key(pipeline.name, RAW).path)
    return dg.RunRequest(
        # Dagster launches one run per key for ever; a range whose run failed needs another one
        run_key=f"{news.range_id}-{attempt}",
        run_config={"ops": {op: {"config": {"until": {topic: dict(found) for topic, found in news.until.items()}}}}},
        tags={RANGE_TAG: news.summary[:_LONGEST_TAG], RANGE_ID_TAG: news.range_id},
    )
