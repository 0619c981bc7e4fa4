"""Tables that are put aside because a step of theirs fails again and again, so that a cut goes on with the others.

Each failure is a row of `cut_failures`, whatever becomes of the run. A table that is put aside waits as one does that a
policy holds (`holding`): what of its rows and statements the cut could not take in, and all that comes after, until a
rebuild makes it anew.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.lake.delta import Commit, append_once, table_state
from cdc_pipeline.lake.tables.ddl_history import HELD
from cdc_pipeline.mirrors.model.ddl_outcome import DdlOutcome
from cdc_pipeline.mirrors.model.steps import ApplyRows, touched
from cdc_pipeline.mirrors.settings.ddl_policy import NO_STATEMENT, HeldTable
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyspark.sql import SparkSession

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.cuts.planned_cut import PlannedCut
    from cdc_pipeline.mirrors.execution.step_runner import StepFailure
    from cdc_pipeline.mysql.model.table import TableName

FAILURES = "cut_failures"
TRIES = 3
"""So many runs fail at a table before it is put aside."""
_SCHEMA = (
    "plan_id STRING, cut_id BIGINT, `database` STRING, `table` STRING, step INT, kind STRING, error STRING, run_id STRING, "
    "failed_at TIMESTAMP"
)


@dataclass(frozen=True)
class GivingUp:
    """A table is put aside after so many `tries` (None: never), and those of `at_once` after one."""

    tries: int | None = TRIES
    at_once: frozenset[TableName] = frozenset()

    def after(self, name: TableName) -> int:
        return 1 if name in self.at_once else sys.maxsize if self.tries is None else self.tries


def noted_failures(
    spark: SparkSession, paths: LakePaths, planned: PlannedCut, failures: Iterable[StepFailure], run_id: str
) -> dict[TableName, int]:
    """Writes the failures down. Returns how often the cut has failed at each of their tables, this time included."""
    now = datetime.now(timezone.utc)
    rows = [
        (
            planned.plan_id,
            planned.window.cut_id,
            failure.step.state.name.database,
            failure.step.state.name.table,
            failure.index,
            type(failure.step).__name__,
            failure.words,
            run_id,
            now,
        )
        for failure in failures
    ]
    path = paths.table(FAILURES)
    # by the clock: each failure counts, and those of one run are one commit
    number = int(now.timestamp() * 1_000_000)
    commit = Commit(f"cdc:{paths.pipeline}:{FAILURES}:{planned.plan_id}", number, {"run_id": run_id})
    append_once(small_frame(spark, rows, _SCHEMA), path, commit)
    counted = spark.read.format("delta").load(path).where(F.col("plan_id") == planned.plan_id)
    found = counted.groupBy("database", "table").agg(F.countDistinct("failed_at").alias("times")).collect()
    names = {failure.step.state.name for failure in failures}
    by_name = {(row["database"], row["table"]): row["times"] for row in found}
    return {name: by_name[name.database, name.table] for name in names}


def failures_of(spark: SparkSession, paths: LakePaths, name: TableName) -> list[str]:
    """What is written down of the table's failures, the newest last."""
    if table_state(spark, paths.table(FAILURES)) is None:
        return []
    rows = spark.read.format("delta").load(paths.table(FAILURES))
    of_table = rows.where((F.col("database") == name.database) & (F.col("table") == name.table))
    return [row["error"] for row in of_table.orderBy("failed_at").collect()]


def put_aside(
    planned: PlannedCut, failures: Iterable[StepFailure], left_out: Collection[int], times: int
) -> PlannedCut:
    """The plan as it was carried out: the tables of the steps that were left out wait, and so do their statements from
    there on."""
    plan, events = planned.plan, planned.rows.events
    held = {table.name: table for table in plan.held}
    held_from, outcomes = dict(plan.held_from), dict(plan.outcomes)
    reasons = _reasons(planned, failures, left_out, times)
    stopped_at: dict[TableName, int] = {}
    for index in sorted(left_out):
        step, place = plan.steps[index], plan.during[index]
        since = events[place].commit_ts if 0 <= place < len(events) else 0
        for name in touched(step):
            held.setdefault(name, HeldTable(name, NO_STATEMENT, since, "", error=reasons[index]))
            stopped_at.setdefault(name, place)
        if isinstance(step, ApplyRows):
            held_from[step.source] = min(*step.segments, held_from.get(step.source, sys.maxsize))
    for place, event in enumerate(events):
        waiting = [name for name in event.names() if place >= stopped_at.get(name, sys.maxsize)]
        if waiting and event.position in outcomes:
            was = outcomes[event.position]
            words = (f"{name} waits: {held[name].gap}" for name in waiting)
            outcomes[event.position] = DdlOutcome(HELD, [*was.effects, *words], was.tables)
    return replace(planned, plan=replace(plan, held=tuple(held.values()), held_from=held_from, outcomes=outcomes))


def _reasons(
    planned: PlannedCut, failures: Iterable[StepFailure], left_out: Collection[int], times: int
) -> dict[int, str]:
    """For each step that was left out why: the failure that it depends on."""
    found: dict[int, str] = {}
    for failure in failures:
        # an error may quote a value
        words = type(failure.error).__name__ if planned.hides else failure.words
        reason = (
            f"{type(failure.step).__name__} of {failure.step.state.name} failed {times} times in cut "
            f"{planned.window.cut_id}: {words}"
        )
        names: set[TableName] = set()
        for index in sorted(left_out):
            own = touched(planned.plan.steps[index])
            if index == failure.index or (index > failure.index and own & names):
                names |= own
                found.setdefault(index, reason)
    return found
