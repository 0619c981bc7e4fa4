"""Runs a job of a pipeline in this process, with its progress on stdout."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import dagster as dg
from dagster_shared.error import SerializableErrorInfo
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

from cdc_pipeline.assets.nodes import RAW
from cdc_pipeline.cli.declared import DeclaredPipeline, readable_lake
from cdc_pipeline.cli.output import progress_bar, say
from cdc_pipeline.errors import TerminalError
from cdc_pipeline.mirrors.changes.progress import published_cut, read_progress
from cdc_pipeline.pipeline import PIPELINE_TAG

_OWN_ERROR = re.compile(r"\Acdc_pipeline\.errors\.\w+: ")
_MOST_EVALUATIONS = 1000
_COMMANDS = {"release_dead_letters": "release", "approve_ddl": "approve", "ddl_dry_run": "status", "rebuild": "rebuild"}
_JOB = re.compile(rf"\b[A-Za-z]\w*_({'|'.join(_COMMANDS)})\b")
_SKIPPED_STEP = "Dependencies for step "
"""Dagster's message about steps after a failed one."""


@dataclass(frozen=True)
class FinishedRun:
    result: dg.ExecuteInProcessResult
    step_seconds: Mapping[str, float]
    checks: Sequence[dg.AssetCheckEvaluation]
    """The newest evaluations, the newest one first."""

    @property
    def was_interrupted(self) -> bool:
        """Whether Ctrl-C or a signal ended the run. Dagster reports it as a failure."""
        return any(
            event.is_step_failure
            and event.step_failure_data.error is not None
            and event.step_failure_data.error.cls_name == dg.DagsterExecutionInterruptedError.__name__
            for event in self.result.all_events
        )

    @property
    def outputs(self) -> Mapping[str, dg.MetadataValue]:
        """The metadata of the outputs of all steps."""
        found = [event.step_output_data.metadata for event in self.result.all_events if event.is_successful_output]
        return dict(ChainMap(*map(dict, found)))

    @property
    def end(self) -> str:
        """Why a run that follows has ended."""
        return str(self.outputs["end"].value) if "end" in self.outputs else ""

    @property
    def failures(self) -> list[str]:
        """One line per failed step: the description of its failure, or the innermost exception."""
        lines = []
        for event in self.result.all_events:
            if event.is_step_failure:
                failure = event.step_failure_data
                described = failure.user_failure_data and failure.user_failure_data.description
                lines.append(described or _reason(failure.error) or f"step {event.step_key} failed")
        return [as_commands(line) for line in lines] or ["the run failed; its log above has the reason"]

    @property
    def warnings(self) -> list[str]:
        """One line per failed check, of its newest evaluation."""
        newest = {check.check_name: check for check in reversed(self.checks)}
        lines = []
        for name, check in newest.items():
            if not check.passed:
                details = "; ".join(f"{label}: {value.value}" for label, value in check.metadata.items())
                lines.append(f"check {name}: {as_commands(check.description or details)}")
        return lines


def as_commands(text: str) -> str:
    """The text with commands in place of the jobs that do the same, which need a Dagster project."""
    return _JOB.sub(lambda job: f"`cdc-pipeline {_COMMANDS[job[1]]}`", text)


def _reason(error: SerializableErrorInfo | None) -> str:
    """The message of the innermost exception, without the class of this package's own errors; empty without an error."""
    while error is not None and error.cause is not None:
        error = error.cause
    return "" if error is None else _OWN_ERROR.sub("", error.message.strip())


class _ProgressLines(logging.Handler):
    """Prints the log messages of steps and why one is retried, without Dagster's other events."""

    def emit(self, record: logging.LogRecord) -> None:
        event: dg.DagsterEvent | None = getattr(record, "dagster_event", None)
        message = getattr(record, "dagster_meta", {}).get("orig_message") or record.getMessage()
        if event is not None:
            if event.event_type is dg.DagsterEventType.STEP_UP_FOR_RETRY:
                retry = event.step_retry_data
                say(
                    f"  failed, next attempt in {retry.seconds_to_wait or 0:.0f} s: {_reason(retry.error)}", fg="yellow"
                )
        elif record.levelno >= logging.INFO and not message.startswith(_SKIPPED_STEP):
            say(f"  {message}")


@dg.logger
def progress_lines(_: dg.InitLoggerContext) -> logging.Logger:
    logger = logging.Logger("cdc_pipeline.cli")
    logger.addHandler(_ProgressLines())
    return logger


def run_job(declared: DeclaredPipeline, job: str, config: Mapping[str, Any] | None = None) -> FinishedRun:
    """Runs `<pipeline>_<job>`. `config`: op → its configuration, without the pipeline's name.

    Stores the run in the Dagster instance of DAGSTER_HOME, if it is set, and nowhere else.
    """
    with_lines = dg.Definitions.merge(declared.definitions, dg.Definitions(loggers={"console": progress_lines}))
    # without loggers in the run config, Dagster's own logger prints every event
    ops = {f"{declared.component.name}_{op}": {"config": fields} for op, fields in (config or {}).items()}
    run_config = {"loggers": {"console": {"config": {}}}, "ops": ops}
    home = os.environ.get("DAGSTER_HOME")
    with (
        progress_bar(active_tasks, "Spark tasks"),
        dg.DagsterInstance.get() if home else dg.DagsterInstance.ephemeral() as instance,
    ):
        result = with_lines.resolve_job_def(f"{declared.component.name}_{job}").execute_in_process(
            instance=instance,
            raise_on_error=False,
            run_config=run_config,
            # Dagster's limit of one run per pipeline does not apply: no launcher watches this process, and the writer lock
            # keeps runs apart
            tags={PIPELINE_TAG: f"{declared.component.name} by cdc-pipeline"},
        )
        steps = instance.get_run_step_stats(result.run_id)
        # not from the result, which lacks what a run that follows reports
        evaluations = instance.get_records_for_run(
            result.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION, limit=_MOST_EVALUATIONS, ascending=False
        )
    seconds = {
        step.step_key.split("__")[-1]: step.end_time - step.start_time
        for step in steps
        if step.start_time is not None and step.end_time is not None
    }
    events = [record.event_log_entry.dagster_event for record in evaluations.records]
    return FinishedRun(result, seconds, [event.asset_check_evaluation_data for event in events if event is not None])


def active_tasks() -> tuple[int, int]:
    """How many tasks of the running Spark stages are finished, and how many there are. 0 and 0 without a session."""
    context, stages = SparkContext._active_spark_context, []
    # the run itself reports that the JVM has ended
    with contextlib.suppress(Py4JError, OSError):
        if context is not None:
            tracker = context.statusTracker()
            found = map(tracker.getStageInfo, tracker.getActiveStageIds())
            stages = [stage for stage in found if stage is not None]
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)


def require_success(run: FinishedRun) -> None:
    """Raises `click.Abort` if the run was interrupted, TerminalError with its errors if it failed."""
    if run.was_interrupted:
        raise click.Abort
    if not run.result.success:
        raise TerminalError("\n".join(run.failures))


def ingest(declared: DeclaredPipeline) -> FinishedRun:
    """Runs `<pipeline>_ingest` and says what it did. Raises TerminalError with the errors of a failed run."""
    pipeline, started = declared.pipeline, time.monotonic()
    say(f"• running {pipeline.name}_ingest: {pipeline.source.location} into {pipeline.lake}")
    run = run_job(declared, "ingest")
    require_success(run)
    (raw,) = run.result.asset_materializations_for_node(f"{pipeline.name}__{RAW}")
    cuts = [
        found
        for found in run.result.asset_materializations_for_node(f"{pipeline.name}_mirrors")
        if "published" in found.metadata
    ]
    if not any(cut.metadata["published"].value for cut in cuts):
        records = int(str(raw.metadata["records"].value))
        say(f"• {_why_no_cut(declared, records)}")
    seconds = {**run.step_seconds, "total": time.monotonic() - started}
    say("• time: " + ", ".join(f"{stage} {spent:.0f} s" for stage, spent in seconds.items()))
    return run


def _why_no_cut(declared: DeclaredPipeline, records: int) -> str:
    if not records:
        return "no new records: the mirrors did not change"
    lake = readable_lake(declared.pipeline.paths, declared)
    reason = read_progress(lake, published_cut(lake)).blocking_reason()
    return f"{records} new records are pending: {reason}"
