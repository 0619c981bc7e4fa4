"""Quarantine: if a table's step fails in several runs, the cut is published without the table.

Each failure is a row of `cut_failures`, also when the run fails. If a process or its JVM ends while steps run, the next run
records a failure of each. A quarantined table is held like one that `ddl_policy` holds: it stays as the cut before has
published it, and its rows and statements wait until a rebuild.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from cdc_pipeline.lake.control_tables import append_rows, read_rows
from cdc_pipeline.lake.delta import Commit, table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import remove_folder, subfolders
from cdc_pipeline.lake.tables.ddl_history import HELD
from cdc_pipeline.mirrors.cuts.stored_plan import PlannedCut
from cdc_pipeline.mirrors.execution.step_runner import StepFailure
from cdc_pipeline.mirrors.model.steps import DdlOutcome
from cdc_pipeline.mirrors.settings.ddl_policy import NO_STATEMENT, HeldTable
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.spark.small_frames import small_table

FAILURES = "cut_failures"
MOST_FAILURES = 3
"""A table is quarantined after this many failed runs."""
_SCHEMA = (
    "plan_id STRING, cut_id BIGINT, `database` STRING, `table` STRING, step INT, kind STRING, error STRING, run_id STRING, "
    "failed_at TIMESTAMP"
)


class ProcessEndedError(Exception):
    """The process that ran a step, or its JVM, ended: it had no memory, or was killed."""


@dataclass(frozen=True)
class QuarantinePolicy:
    """After how many failed runs a table is quarantined."""

    most_failures: int | None = MOST_FAILURES
    """None: never."""
    at_once: frozenset[TableName] = frozenset()
    """The keys of tables that are quarantined after the first failure, because they are expected to fail."""

    def limit(self, key: TableName) -> int:
        """The failed runs after which the table is quarantined."""
        return 1 if key in self.at_once else sys.maxsize if self.most_failures is None else self.most_failures


def record_failures(lake: Lake, planned: PlannedCut, failures: Iterable[StepFailure], run_id: str) -> None:
    """Appends the failures to `cut_failures`."""
    now = datetime.now(timezone.utc)
    rows = [
        (
            planned.plan_id,
            planned.window.cut_id,
            failure.step.state.name.database,
            failure.step.state.name.table,
            failure.index,
            type(failure.step).__name__,
            failure.message,
            run_id,
            now,
        )
        for failure in failures
    ]
    if rows:
        # a version from the clock, because each run's failures count
        number = int(now.timestamp() * 1_000_000)
        commit = Commit(f"cdc:{lake.paths.pipeline}:{FAILURES}:{planned.plan_id}", number, {"run_id": run_id})
        append_rows(lake, FAILURES, small_table(rows, _SCHEMA), commit)


def times_failed(lake: Lake, planned: PlannedCut, failures: Iterable[StepFailure]) -> dict[TableName, int]:
    """How often the table of each failure has failed in this plan. Ends of a process count apart, at the same place only."""
    rows = read_rows(lake, FAILURES, ("plan_id", "=", planned.plan_id))
    found = {}
    for failure in failures:
        name, ended = failure.step.state.name, isinstance(failure.error, ProcessEndedError)
        own = [row for row in rows if (row["database"], row["table"]) == (name.database, name.table)]
        same = [row for row in own if (row["error"] == failure.message if ended else not _is_end(row["error"]))]
        found[name] = len({row["failed_at"] for row in same})
    return found


def _is_end(error: str) -> bool:
    return error.startswith(ProcessEndedError.__name__)


def record_ended_steps(lake: Lake, planned: PlannedCut, run_id: str) -> list[StepFailure]:
    """Records a failure of each step that ran when the process of an earlier run or its JVM ended (`StepRunner.marks`)."""
    failures, marks = [], subfolders(lake.spark, lake.paths.running)
    # before the record: a run that is killed at each commit would record the same ends for ever
    remove_folder(lake.spark, lake.paths.running)
    for mark in marks:
        plan_id, _, index = mark.rsplit("/", 1)[1].rpartition("-")
        if plan_id == planned.plan_id:
            step = planned.plan.steps[int(index)]
            mirror = table_state(lake.spark, step.state.folder(lake.paths))
            place = f"step {index}, version {mirror and mirror.version} of the mirror"
            failures.append(StepFailure(int(index), step, ProcessEndedError(f"the process or its JVM ended ({place})")))
    record_failures(lake, planned, failures, run_id)
    return failures


def steps_to_give_up(lake: Lake, planned: PlannedCut) -> dict[int, Exception]:
    """The steps in which the process has ended too often at one place, each with its error. A kill or two is no sign."""
    rows = read_rows(lake, FAILURES, ("plan_id", "=", planned.plan_id))
    ends = Counter((row["step"], row["error"]) for row in rows if _is_end(row["error"]))
    given_up = (place for place, times in ends.items() if times >= MOST_FAILURES)
    return {step: ProcessEndedError(error.partition(": ")[2]) for step, error in given_up}


def without_failed_tables(planned: PlannedCut, failures: Iterable[StepFailure], times: int) -> PlannedCut:
    """The plan without the failed tables and those that share a name with them: they are quarantined, and their statements
    and rows wait from the beginning of the cut. `times`: how often they failed."""
    plan, key = planned.plan, planned.settings.selection.key
    held, names, outcomes = {key(table.name): table for table in plan.held}, set[TableName](), dict(plan.outcomes)
    for failure in failures:
        # without the text of the error, which may quote a value
        reason = (
            f"{type(failure.step).__name__} of {failure.step.state.name} failed {times} times in cut "
            f"{planned.window.cut_id}: {type(failure.error).__name__}, see {FAILURES}"
        )
        for name in (name for index in failure.chain for name in plan.steps[index].names()):
            if key(name) not in names:  # the first name is that of the published mirror
                rows = held[key(name)].rows if key(name) in held else 0
                held[key(name)] = HeldTable(name, NO_STATEMENT, planned.window.after_tso or 0, rows, reason)
                names.add(key(name))
    for event in planned.row_selection.events:
        if event.position in outcomes and (stopped := [name for name in event.names() if name in names]):
            outcomes[event.position] = DdlOutcome(HELD, [f"{name} waits: {held[name].gap}" for name in stopped])
    held_from = {**plan.held_from, **dict.fromkeys(names, 0)}
    return replace(planned, plan=replace(plan, held=tuple(held.values()), held_from=held_from, outcomes=outcomes))
