"""The DDL events of one cut: which ones it applies, which are duplicates or late, and storing their outcomes."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.gaps import Gap, GapKind, statement_gap
from cdc_pipeline.lake.delta import Commit, commit_session
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.restored_tables import require_not_restored
from cdc_pipeline.lake.tables.ddl_history import (
    APPLIED,
    APPROVED_BY,
    DUPLICATE,
    HELD,
    NOT_APPLIED,
    NOT_INCLUDED,
    RESULT_COLUMNS,
)
from cdc_pipeline.mirrors.changes.statement_copies import DeliveriesOf, statement_identities, undoes_itself
from cdc_pipeline.mirrors.changes.window import Window
from cdc_pipeline.mirrors.cuts.cut_report import ReportedStatement
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent, ddl_event, in_upstream_order
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import DdlOutcome
from cdc_pipeline.mirrors.planning.included_ddl import exclusion_reason, mirrored_event
from cdc_pipeline.mirrors.settings.selection import TableSelection
from cdc_pipeline.mysql.ddl.statements import without_literals
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import POSITION, Position
from cdc_pipeline.spark.small_frames import small_frame

_WAITING = (HELD, NOT_APPLIED)
_RESULTS = f"topic STRING, `partition` INT, `offset` BIGINT, {RESULT_COLUMNS}"


@dataclass(frozen=True)
class CutStatements:
    """The statements of one cut."""

    to_apply: tuple[DdlEvent, ...] = ()
    """Statements for the planner, in stream order."""
    decided: dict[Position, DdlOutcome] = field(default_factory=dict)
    """Outcomes of statements that need no planner, by position."""
    late: tuple[DdlEvent, ...] = ()
    """Statements of `decided` that arrived after the mirrors had passed their commit_ts."""
    repeated: tuple[DdlEvent, ...] = ()
    """Statements of `to_apply` that Canal may have sent twice."""

    @staticmethod
    def read(window: Window, history: DataFrame, deliveries_of: DeliveriesOf = lambda events: {}) -> CutStatements:
        """Reads the statements of the window, and late ones, from `ddl_history`.

        `deliveries_of` finds the deliveries of Canal's equal statements. `status` is ignored inside the window, because a
        begun cut may have stored its outcomes already.
        """
        rows, late_rows = window.collect_new_and_late(history)
        inside, late = in_upstream_order(map(ddl_event, rows)), in_upstream_order(map(ddl_event, late_rows))
        if not inside and not late:
            return CutStatements()
        oldest = min(event.commit_ts for event in (*inside, *late))
        before = history.where(F.col("batch_id") <= window.after_batch).where(F.col("cut_id") < window.cut_id)
        # equal statements, and those between them
        earlier = [ddl_event(row) for row in before.where(F.col("commit_ts") >= oldest).collect()]
        identities = statement_identities([*earlier, *inside, *late], deliveries_of)
        known = {identities[event.position] for event in earlier}
        decided: dict[Position, DdlOutcome] = {}
        for event in (*inside, *late):
            if identities[event.position] in known:
                decided[event.position] = DdlOutcome(DUPLICATE, ["applied by an earlier cut"])
        for event in late:
            if event.position not in decided:
                reason = f"{NOT_APPLIED}: it arrived after the mirrors had passed its commit_ts"
                decided[event.position] = DdlOutcome(NOT_APPLIED, [reason])
        to_apply: list[DdlEvent] = []
        seen = set()
        for event in in_upstream_order(event for event in inside if event.position not in decided):
            if identities[event.position] in seen:
                decided[event.position] = DdlOutcome(DUPLICATE, ["the same statement with the same time precedes it"])
            else:
                to_apply.append(event)
            seen.add(identities[event.position])
        repeated = [one for one in to_apply if identities[one.position][-1] > 1 and undoes_itself(one.changes)]
        return CutStatements(tuple(to_apply), decided, tuple(late), tuple(repeated))

    def routed(self, selection: TableSelection) -> CutStatements:
        """Replaces statements on upstream's tables by what they do to mirrors. Those that concern no mirror are decided."""
        decided, to_apply = dict(self.decided), []
        for event in self.to_apply:
            routed = mirrored_event(event, selection)
            if routed.changes or not event.changes:
                to_apply.append(routed)
            else:
                decided[event.position] = DdlOutcome(NOT_INCLUDED, [exclusion_reason(event)])
        late = [(event, mirrored_event(event, selection)) for event in self.late]
        for event, routed in late:
            if event.database and not routed.changes and decided[event.position].status == NOT_APPLIED:
                decided[event.position] = DdlOutcome(NOT_INCLUDED, [exclusion_reason(event)])
        repeated = tuple(mirrored_event(event, selection) for event in self.repeated)
        return CutStatements(tuple(to_apply), decided, tuple(routed for _, routed in late), repeated)

    def gaps(self) -> list[tuple[TableName, Gap]]:
        """A gap for each table of a late statement that no earlier cut has applied, and of one that may have been sent
        twice."""
        late = [event for event in self.late if self.decided[event.position].status == NOT_APPLIED]
        reasons = (
            (late, GapKind.LATE_DDL, "DDL arrived after the mirrors had passed its commit_ts"),
            (
                self.repeated,
                GapKind.UNKNOWN_DUPLICATES,
                "a statement came twice with one time, and the messages do not show which were executed",
            ),
        )
        return [
            (name, statement_gap(kind, text, event.position))
            for events, kind, text in reasons
            for event in events
            for name in event.names()
        ]


def reported_statements(
    events: Iterable[DdlEvent], outcomes: Mapping[Position, DdlOutcome]
) -> tuple[ReportedStatement, ...]:
    """The statements of a cut that were applied, held or not applied, in the order of `outcomes`."""
    known = {event.position: event for event in events}
    found = []
    for position, outcome in outcomes.items():
        if outcome.status in (APPLIED, HELD, NOT_APPLIED):
            event = known.get(position)
            tables, sql = ((), "") if event is None else (event.names(), event.sql)
            found.append(
                ReportedStatement(
                    outcome.status, tables, without_literals(sql), without_literals(outcome.effect), position
                )
            )
    return tuple(found)


def store_outcomes(lake: Lake, outcomes: dict[Position, DdlOutcome], note: dict[str, Any]) -> None:
    """Writes the outcome of each statement into `ddl_history`, in one commit."""
    if not outcomes:
        return
    commit = Commit(f"cdc:{lake.paths.pipeline}:ddl_results", int(note["cut"]), note)
    session = commit_session(lake.spark, commit)
    rows = [
        (*position, outcome.status, outcome.effect, note["cut"], [_table_row(state) for state in outcome.tables])
        for position, outcome in outcomes.items()
    ]
    _merge_results(session, lake.paths, small_frame(session, rows, _RESULTS))


def mark_approved(lake: Lake, statements: Iterable[Position], run_id: str) -> None:
    """Writes into the `effect` of held statements which run applies them."""
    # a commit would hide the RESTORE
    require_not_restored(lake, lake.paths.table("ddl_history"))
    commit = Commit(f"cdc:{lake.paths.pipeline}:ddl_results:{uuid.uuid4().hex}", 1, {"run_id": run_id})
    session = commit_session(lake.spark, commit)
    rows = [(*position, f"{APPROVED_BY}{run_id}") for position in {*statements}]
    marks = small_frame(session, rows, "topic STRING, `partition` INT, `offset` BIGINT, effect STRING")
    _merge_results(session, lake.paths, marks)


def update_held_statements(lake: Lake, rebuilt: Lake, note: dict[str, Any]) -> None:
    """Copies to `ddl_history` the outcomes of statements that only one of the lake and the scratch lake `rebuilt` holds or
    could not apply."""
    before = lake.read("ddl_history").select(*POSITION, F.col("status").alias("status_before"))
    changed = (
        rebuilt.read("ddl_history")
        .join(before, list(POSITION))
        .where("status <> status_before")
        .where(F.col("status").isin(*_WAITING) | F.col("status_before").isin(*_WAITING))
        .select(*POSITION, "status", "effect", "tables")
        .localCheckpoint()
    )
    if changed.isEmpty():
        return
    commit = Commit(f"cdc:{lake.paths.pipeline}:ddl_results:{uuid.uuid4().hex}", 1, note)
    _merge_results(commit_session(lake.spark, commit), lake.paths, changed)


def _merge_results(session: SparkSession, paths: LakePaths, results: DataFrame) -> None:
    """Updates the rows of `ddl_history` at the positions of `results`."""
    (
        DeltaTable.forPath(session, paths.table("ddl_history"))
        .alias("t")
        .merge(results.alias("s"), " AND ".join(f"t.`{name}` = s.`{name}`" for name in POSITION))
        .whenMatchedUpdate(set={name: f"s.{name}" for name in results.columns if name not in POSITION})
        .execute()
    )


def _table_row(state: MirrorState) -> tuple[Any, ...]:
    columns = [
        (
            column.name,
            str(column.type),
            column.nullable,
            None if column.default is None else column.default.value,
            column.generated,
        )
        for column in state.schema.columns
    ]
    keys = [list(key.columns) for key in state.schema.unique_keys]
    return (state.name.database, state.name.table, columns, list(state.schema.primary_key), keys)
