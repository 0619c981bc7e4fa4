"""`make demo`: runs the job `shop_ingest` once and prints the mirrors."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.definitions import defs
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.changes.progress import published_cut, read_progress
from cdc_pipeline.mirrors.cuts.cut_report import published_entries, tso_datetime
from cdc_pipeline.spark.java import JavaError
from cdc_pipeline.spark.session import SparkLakehouse

if TYPE_CHECKING:
    from cdc_pipeline.pipeline import Pipeline

NAME = "shop"


def main() -> int:
    """Returns the exit code: 0 if the run succeeded, 1 after one error line."""
    started = time.monotonic()
    try:
        pipeline = declared_pipeline(NAME)
    except Exception as error:  # Dagster wraps errors of the YAML file
        print(f"error: the pipeline {NAME!r} cannot be loaded: {_innermost(error)}", file=sys.stderr, flush=True)
        return 1
    try:
        return _demo(pipeline, started)
    except (CdcError, JavaError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1


def _innermost(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _demo(pipeline: Pipeline, started: float) -> int:
    seconds = {"load Dagster": time.monotonic() - started}
    spark_started = time.monotonic()
    _say("starting Spark")
    lake = Lake(SparkLakehouse().session, pipeline.paths)  # the run uses this session
    seconds["start Spark"] = time.monotonic() - spark_started
    before = published_cut(lake)
    _say(f"running the Dagster job {NAME}_ingest: {pipeline.source.location} into {pipeline.lake}")
    result, step_seconds = _run(f"{NAME}_ingest")
    seconds.update(step_seconds)
    if not result.success:
        for line in _failures(result):
            print(f"error: {line}", file=sys.stderr, flush=True)
        return 1
    after = published_cut(lake)
    if after.cut_id == before.cut_id:
        _say(_why_no_cut(lake, _new_records(result)))
    for line in _warnings(result):
        print(f"warning: {line}")
    _print_mirrors(lake)
    seconds["total"] = time.monotonic() - started
    print("time: " + ", ".join(f"{stage} {spent:.0f} s" for stage, spent in seconds.items()))
    return 0


def _new_records(result: dg.ExecuteInProcessResult) -> int:
    (raw,) = result.asset_materializations_for_node(f"{NAME}__raw_topic_snapshot")
    return int(str(raw.metadata["records"].value))


def _why_no_cut(lake: Lake, new_records: int) -> str:
    if not new_records:
        return "no new records: the mirrors did not change"
    reason = read_progress(lake, published_cut(lake)).blocking_reason()
    return f"{new_records} new records are pending: {reason}"


def declared_pipeline(name: str) -> Pipeline:
    """The pipeline that `defs/<name>/defs.yaml` declares."""
    tree = dg.ComponentTree.for_project(Path(__file__).parent)
    component = tree.load_component(name)
    assert isinstance(component, CdcPipeline)
    return component.pipeline


def _say(text: str) -> None:
    print(f"• {text}", flush=True)


class _ProgressLines(logging.Handler):
    """Prints the log messages of the assets, without Dagster's events."""

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "dagster_event", None) is None and record.levelno == logging.INFO:
            message = getattr(record, "dagster_meta", {}).get("orig_message") or record.getMessage()
            print(f"  {message}", flush=True)


@dg.logger
def progress_lines(_: dg.InitLoggerContext) -> logging.Logger:
    logger = logging.Logger("cdc_pipeline.demo")
    logger.addHandler(_ProgressLines())
    return logger


def _run(job: str) -> tuple[dg.ExecuteInProcessResult, dict[str, float]]:
    """The result, and the seconds per step."""
    with_lines = dg.Definitions.merge(defs(), dg.Definitions(loggers={"console": progress_lines}))
    # without loggers in the run config, Dagster's own logger prints every event
    run_config: dict[str, Any] = {"loggers": {"console": {"config": {}}}}
    with dg.DagsterInstance.get() as instance:
        result = with_lines.resolve_job_def(job).execute_in_process(
            instance=instance, raise_on_error=False, run_config=run_config
        )
        steps = instance.get_run_step_stats(result.run_id)
    return result, {
        step.step_key.split("__")[-1]: step.end_time - step.start_time
        for step in steps
        if step.start_time is not None and step.end_time is not None
    }


def _failures(result: dg.ExecuteInProcessResult) -> list[str]:
    """One line per failed step: the description of its failure, or the innermost exception."""
    lines = []
    for event in result.all_events:
        if not event.is_step_failure:
            continue
        failure = event.step_failure_data
        if failure.user_failure_data is not None and failure.user_failure_data.description:
            lines.append(failure.user_failure_data.description)
            continue
        error = failure.error
        while error is not None and error.cause is not None:
            error = error.cause
        lines.append(error.message.strip() if error is not None else f"step {event.step_key} failed")
    return lines or ["the run failed; see its log in the UI (make ui)"]


def _warnings(result: dg.ExecuteInProcessResult) -> list[str]:
    """One line per failed check."""
    lines = []
    for check in result.get_asset_check_evaluations():
        if not check.passed:
            details = "; ".join(f"{name}: {value.value}" for name, value in check.metadata.items())
            lines.append(f"check {check.check_name}: {check.description} ({details})")
    return lines


def _print_mirrors(lake: Lake) -> None:
    cut = published_cut(lake)
    entries = published_entries(cut, lake.paths)
    if not entries:
        print("no mirrors yet: no table has rows or a CREATE TABLE, or a partition has no watermark")
        return
    moment = tso_datetime(cut.resolved_tso)
    resolved = (
        "none (no watermarks)"
        if moment is None
        else f"{cut.resolved_tso} ({moment:%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC)"
    )
    head = ("mirror", "rows", "columns", "resolved TSO", "path")
    rows = [(str(entry.name), str(entry.rows), str(entry.columns), resolved, _short(entry.path)) for entry in entries]
    widths = [max(len(row[index]) for row in (head, *rows)) for index in range(len(head))]
    print()
    for row in (head, tuple("-" * width for width in widths), *rows):
        cells = (
            cell.rjust(width) if index in (1, 2) else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(cells).rstrip())
    print()


def _short(path: str) -> str:
    """The path relative to the working directory, if it is inside."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path


if __name__ == "__main__":
    sys.exit(main())
