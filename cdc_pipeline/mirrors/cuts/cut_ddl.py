"""The DDL events of one cut: which are to be carried out, which are repetitions, and what is written back of each."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import functions as F

from cdc_pipeline.gaps import GapKind, of_statement
from cdc_pipeline.lake.delta import Commit, session_for
from cdc_pipeline.lake.tables.ddl_history import (
    APPLIED,
    DUPLICATE,
    HELD,
    NO_EFFECT,
    NOT_APPLIED,
    NOT_INCLUDED,
    RESULT_COLUMNS,
)
from cdc_pipeline.mirrors.changes.row_filters import clock_ts, not_older
from cdc_pipeline.mirrors.changes.statement_copies import statement_identities
from cdc_pipeline.mirrors.changes.unqualified_names import with_databases
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent, ddl_event, in_order
from cdc_pipeline.mirrors.model.ddl_outcome import DdlOutcome
from cdc_pipeline.mirrors.planning.included_ddl import left_out_words
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.gaps import Gap
    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.changes.statement_copies import RestartsOf
    from cdc_pipeline.mirrors.changes.window import Window
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mirrors.planning.included_ddl import IncludedDdl
    from cdc_pipeline.mirrors.planning.planner import CutPlan
    from cdc_pipeline.mysql.model.table import TableName

_POSITION = ("topic", "partition", "offset")
_CLOSING = f"topic STRING, `partition` INT, `offset` BIGINT, {RESULT_COLUMNS}"


@dataclass(frozen=True)
class DdlOfCut:
    """`fresh` are to be carried out, in stream order; `settled` are decided without a look at any mirror.

    `late` are those of the settled that came after their time.
    """

    fresh: tuple[DdlEvent, ...]
    settled: dict[tuple[str, int, int], DdlOutcome]
    late: tuple[DdlEvent, ...] = ()

    @staticmethod
    def read(
        window: Window, history: DataFrame, returning: list[DdlEvent], restarts_of: RestartsOf = lambda events: {}
    ) -> DdlOfCut:
        """The events of the window, and those that came late, from `ddl_history`; `returning` come again.

        `restarts_of` tells where Canal began again between statements that are equal.

        `status` is not looked at inside the window: a cut that was begun may have closed its events already.
        """
        rows, late_rows = window.taken_and_late(history)
        taken, late = in_order(map(ddl_event, rows)), in_order(map(ddl_event, late_rows))
        if not taken and not late:
            return DdlOfCut(tuple(returning), {})
        times = [event.commit_ts for event in (*taken, *late)]
        before = history.where(F.col("batch_id") <= window.after_batch).where(F.col("cut_id") < window.cut_id)
        past = [ddl_event(row) for row in before.where(F.col("commit_ts").isin(times)).collect()]
        # one that returns is among those of earlier cuts already
        identities = statement_identities([*past, *taken, *late, *returning], restarts_of)
        known = {identities[event.position] for event in past}
        # at the very watermark statements may come after it (ticdc-canal-json: "less than watermarkTs")
        at_watermark = [event for event in late if event.exact_ts and event.commit_ts == window.after_tso]
        taken += [event for event in at_watermark if identities[event.position] not in known]
        late = [event for event in late if event not in taken]
        settled: dict[tuple[str, int, int], DdlOutcome] = {}
        for event in (*taken, *late):
            if identities[event.position] in known:
                settled[event.position] = DdlOutcome(DUPLICATE, ["applied by an earlier cut"])
        for event in late:
            if event.position not in settled:
                reason = f"{NOT_APPLIED}: it came after the mirrors had passed its time"
                settled[event.position] = DdlOutcome(NOT_APPLIED, [reason])
        fresh: list[DdlEvent] = []
        seen = set()
        for event in in_order([*returning, *(event for event in taken if event.position not in settled)]):
            if identities[event.position] in seen:
                settled[event.position] = DdlOutcome(DUPLICATE, ["the same statement at the same time came before"])
            else:
                fresh.append(event)
            seen.add(identities[event.position])
        return DdlOfCut(tuple(fresh), settled, tuple(late))

    def with_databases(self, known: Iterable[TableName]) -> DdlOfCut:
        """The same with the database of tables that neither message nor statement names. `known` are upstream's tables
        before the cut, and those of its rows."""
        return replace(self, fresh=tuple(with_databases(self.fresh, known)))

    def mirrored(self, included: IncludedDdl) -> DdlOfCut:
        """The same by what the events do to mirrors; those that do nothing to any are settled."""
        settled, fresh, late = dict(self.settled), [], []
        for event in self.fresh:
            found = included.event(event)
            if found.changes or not event.changes:
                fresh.append(found)
            else:
                settled[event.position] = DdlOutcome(NOT_INCLUDED, [*found.notes, left_out_words(event)])
        names_only = replace(included, definitions=None)
        for event in self.late:
            found = names_only.event(event)
            late.append(found)
            if event.database and not found.changes and settled[event.position].status == NOT_APPLIED:
                settled[event.position] = DdlOutcome(NOT_INCLUDED, [left_out_words(event)])
        return DdlOfCut(tuple(fresh), settled, tuple(late))

    def missed(self) -> list[tuple[TableName, Gap]]:
        """The tables of statements that came too late and were never seen before, each with the gap it has from that."""
        words = "DDL came after the mirrors had passed its time (commit_ts {})"
        return [
            (name, of_statement(GapKind.LATE_DDL, f"{said}: see ddl_history", said, event.sql))
            for event in self.late
            for said in [words.format(event.commit_ts)]
            if self.settled[event.position].status == NOT_APPLIED
            for name in event.names()
        ]

    def outcomes(self, plan: CutPlan) -> dict[tuple[str, int, int], DdlOutcome]:
        return {**self.settled, **plan.outcomes}


def carried_out_before(
    window: Window, history: DataFrame, changes: DataFrame, mirrored: Callable[[DdlEvent], DdlEvent]
) -> list[DdlEvent]:
    """The statements that earlier cuts have carried out and that are not older than the oldest of the changes, in order:
    without watermarks a change may come after them that lies before them."""
    if window.resolved_tso is not None or window.after_batch == 0:
        return []
    times = F.min("commit_ts").alias("commit_ts"), F.min(clock_ts()).alias("ts")
    oldest = changes.where("NOT taken").agg(*times).first()
    if oldest is None or oldest["commit_ts"] is None:
        return []
    later = not_older(oldest["commit_ts"], oldest["ts"])
    past = history.where((F.col("cut_id") < window.cut_id) & F.col("status").isin(APPLIED, NO_EFFECT) & later)
    return in_order(mirrored(ddl_event(row)) for row in past.collect())


def altered_at_watermark(
    window: Window, history: DataFrame, mirrored: Callable[[DdlEvent], DdlEvent]
) -> set[TableName]:
    """The tables that statements of earlier cuts have changed at the very TSO that is applied: a row of that TSO lies before
    them, so that it is too late for it."""
    if window.after_tso is None:
        return set()
    past = history.where(
        (F.col("cut_id") < window.cut_id) & F.col("exact_ts") & (F.col("commit_ts") == window.after_tso)
    )
    return {name for row in past.collect() for name in mirrored(ddl_event(row)).names()}


def close_events(
    spark: SparkSession, paths: LakePaths, outcomes: dict[tuple[str, int, int], DdlOutcome], note: dict[str, Any]
) -> None:
    """Writes into `ddl_history` what became of each event, in one commit."""
    if not outcomes:
        return
    commit = Commit(f"cdc:{paths.pipeline}:ddl_results", int(note["cut"]), note)
    session = session_for(spark, commit)
    rows = [
        (*position, outcome.status, outcome.effect, note["cut"], [_table_row(state) for state in outcome.tables])
        for position, outcome in outcomes.items()
    ]
    results = small_frame(session, rows, _CLOSING)
    _written(session, paths, results)


def close_statements(spark: SparkSession, paths: LakePaths, made: LakePaths, note: dict[str, Any]) -> None:
    """Writes into `ddl_history` what has become of statements that waited and were carried out when tables were made again:
    `made` is where that was done."""
    history = spark.read.format("delta").load(paths.table("ddl_history")).where(F.col("status") == HELD)
    done = (
        spark.read.format("delta")
        .load(made.table("ddl_history"))
        .where(F.col("status") != HELD)
        .join(history.select(*_POSITION), list(_POSITION), "left_semi")
        .select(*_POSITION, "status", "effect", "tables")
        .localCheckpoint()
    )
    if done.isEmpty():
        return
    commit = Commit(f"cdc:{paths.pipeline}:ddl_results:{uuid.uuid4().hex}", 1, note)
    _written(session_for(spark, commit), paths, done)


def _written(session: SparkSession, paths: LakePaths, results: DataFrame) -> None:
    """Puts the results, which have the statements' positions, into `ddl_history`."""
    (
        DeltaTable.forPath(session, paths.table("ddl_history"))
        .alias("t")
        .merge(results.alias("s"), " AND ".join(f"t.`{name}` = s.`{name}`" for name in _POSITION))
        .whenMatchedUpdate(set={name: f"s.{name}" for name in results.columns if name not in _POSITION})
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
