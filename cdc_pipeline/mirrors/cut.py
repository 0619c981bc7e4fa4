"""One consistent cut: all mirrors taken to the same resolved TSO, then published in one row of `consistent_cuts`."""

from __future__ import annotations

import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pyspark import inheritable_thread_target

from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.mirrors.apply import Mirrors, StepResult, later_places
from cdc_pipeline.mirrors.ddl_of_cut import DdlOfCut, close_events
from cdc_pipeline.mirrors.dead_letters import lost_rows
from cdc_pipeline.mirrors.order import RowSet, net_changes, with_segments
from cdc_pipeline.mirrors.planner import Planner
from cdc_pipeline.mirrors.progress import PublishedCut, StreamProgress, published_cut, stream_progress
from cdc_pipeline.mirrors.row_groups import row_groups, with_types
from cdc_pipeline.mirrors.state import MirrorState
from cdc_pipeline.mirrors.steps import ApplyRows, step_names
from cdc_pipeline.mirrors.totals import NO_CHANGES, CutTotals
from cdc_pipeline.mirrors.window import begun_window, next_window, write_down
from cdc_pipeline.resources.delta import Commit, append_once, table_state
from cdc_pipeline.schemas.table import TableName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.mirrors.planner import CutPlan
    from cdc_pipeline.mirrors.window import Window
    from cdc_pipeline.resources.lake import LakePaths

_MIRROR = (
    "STRUCT<`database`: STRING, `table`: STRING, mirror_id: STRING, path: STRING, version: BIGINT, `rows`: BIGINT, "
    "columns: INT, gaps: ARRAY<STRING>>"
)
CUTS_SCHEMA = (
    "cut_id BIGINT, resolved_tso BIGINT, resolved_time TIMESTAMP, last_batch BIGINT, run_id STRING, "
    "published_at TIMESTAMP, changes BIGINT, applied BIGINT, superseded BIGINT, rejected BIGINT, late BIGINT, "
    "pending BIGINT, held_by STRING, "
    f"mirrors ARRAY<{_MIRROR}>, changed ARRAY<STRUCT<`database`: STRING, `table`: STRING>>"
)


@dataclass(frozen=True)
class MirrorEntry:
    """A mirror as a cut shows it."""

    name: TableName
    mirror_id: str
    path: str
    version: int
    rows: int
    columns: int
    gaps: tuple[str, ...]


@dataclass
class TableCounts:
    """What a cut did to one mirror."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    changes: int = 0
    bad_rows: int = 0
    zero_dates: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class CutReport:
    """What a run shows of a cut. `published` is False where there was nothing complete to apply."""

    published: bool
    cut_id: int
    resolved_tso: int | None
    streams: StreamProgress
    mirrors: tuple[MirrorEntry, ...]
    changed: dict[TableName, TableCounts] = field(default_factory=dict)
    totals: CutTotals = NO_CHANGES
    seconds: float = 0.0

    @property
    def resolved_time(self) -> datetime | None:
        return tso_datetime(self.resolved_tso)


def tso_datetime(tso: int | None) -> datetime | None:
    """The instant of a TSO in UTC, ms precision."""
    return None if tso is None else datetime.fromtimestamp((tso >> TSO_SHIFT) / 1000, timezone.utc)


@dataclass(frozen=True)
class CutMaker:
    """Makes cuts of one pipeline. `report` is told of progress in one line at a time."""

    spark: SparkSession
    paths: LakePaths
    run_id: str
    time_zone: str
    side_by_side: int
    report: Callable[[str], None]

    def brought_up_to_date(self) -> CutReport:
        """Finishes a cut that was begun, then takes the mirrors as far as the streams are complete."""
        started = time.monotonic()
        published = published_cut(self.spark, self.paths)
        streams = stream_progress(self.spark, self.paths)
        report: CutReport | None = None
        if begun := begun_window(self.spark, self.paths, published):
            self.report(f"finishing cut {begun[0].cut_id}, which an earlier run began")
            report = self._cut(begun[0], published, streams, begun[1])
            published = published_cut(self.spark, self.paths)
        if window := next_window(published, streams):
            report = self._cut(window, published, streams, None)
        if report is None:
            entries = published_entries(published, self.paths)
            report = CutReport(False, published.cut_id, published.resolved_tso, streams, entries)
        return CutReport(**{**report.__dict__, "seconds": time.monotonic() - started})

    def _cut(
        self,
        window: Window,
        published: PublishedCut,
        streams: StreamProgress,
        begun: dict[TableName, MirrorState | None] | None,
    ) -> CutReport:
        log, history = self._table("change_log"), self._table("ddl_history")
        ddl = DdlOfCut.read(window, history)
        changes = with_segments(window.changes(log), ddl.fresh).persist()
        try:
            loaded: dict[TableName, MirrorState | None] = {} if begun is None else dict(begun)

            def lookup(name: TableName) -> MirrorState | None:
                if name not in loaded:
                    loaded[name] = self._stored_state(name)
                return loaded[name]

            groups = with_types(row_groups(changes), self._table("raw_topic_snapshot"), changes, lookup)
            lost = lost_rows(window, self._table("dead_letters"))
            plan = Planner(groups, lookup, published.names, window.cut_id, lost).plan(ddl.fresh)
            if begun is None:
                write_down(self.spark, self.paths, window, loaded, self.run_id)
            results, counted = self._carry_out(plan, changes, window, resumed=begun is not None)
        finally:
            changes.unpersist()
        counts = _counts(results)
        entries = self._entries(plan, published)
        rejected = sum(result.rejected for result in results)
        totals = CutTotals(
            changes=sum(group.changes for group in groups),
            applied=counted - rejected,
            rejected=rejected,
            late=window.late(log).count(),
            pending=window.pending(log).count(),
        )
        close_events(self.spark, self.paths, ddl.outcomes(plan), self._note(window))
        self._publish(window, streams, entries, counts, totals)
        return CutReport(True, window.cut_id, window.resolved_tso, streams, entries, counts, totals)

    # ---- inputs

    def _table(self, name: str) -> DataFrame:
        return self.spark.read.format("delta").load(self.paths.table(name))

    def _stored_state(self, name: TableName) -> MirrorState | None:
        table = table_state(self.spark, self.paths.mirror(name))
        return None if table is None else MirrorState.from_properties(table.properties)

    # ---- steps

    def _carry_out(
        self, plan: CutPlan, changes: DataFrame, window: Window, *, resumed: bool
    ) -> tuple[list[StepResult], int]:
        """The steps' results, and how many of the changes are left once each row's are folded to its last."""
        row_sets = {
            index: _row_set(index, step) for index, step in enumerate(plan.steps) if isinstance(step, ApplyRows)
        }
        view = f"net_{self.paths.pipeline}_{window.cut_id}".replace("-", "_")
        net = net_changes(changes, row_sets.values()).persist()
        counted = net.where("counts").count()
        net.createOrReplaceGlobalTempView(view)
        writer = Mirrors(
            self.spark,
            self.paths,
            window.cut_id,
            self._note(window),
            self.time_zone,
            view,
            self.side_by_side,
            later_places(self.paths, plan.steps),
            resumed,
        )
        try:
            return writer.carried_out(plan.steps, row_sets, self.report), counted
        finally:
            self.spark.catalog.dropGlobalTempView(view)
            net.unpersist()

    # ---- results

    def _entries(self, plan: CutPlan, published: PublishedCut) -> tuple[MirrorEntry, ...]:
        """All mirrors after the cut: those that the plan left alone as they were, the others as they are now."""
        touched = sorted({name for step in plan.steps for name in step_names(step)})
        entries = {entry.name: entry for entry in published_entries(published, self.paths)}
        with ThreadPoolExecutor(max_workers=self.side_by_side, thread_name_prefix="count") as pool:
            found = dict(
                zip(touched, pool.map(inheritable_thread_target(self.spark)(self._entry), touched), strict=True)
            )
        entries.update({name: entry for name, entry in found.items() if entry is not None})
        return tuple(entries[name] for name in sorted(entries) if found.get(name, entries[name]) is not None)

    def _entry(self, name: TableName) -> MirrorEntry | None:
        """The mirror of that name as it is now."""
        path = self.paths.mirror(name)
        table = table_state(self.spark, path)
        if table is None:
            return None
        state = MirrorState.from_properties(table.properties)
        rows = self.spark.read.format("delta").load(path).count()
        return MirrorEntry(name, state.mirror_id, path, table.version, rows, len(state.schema.columns), state.gaps)

    def _note(self, window: Window) -> dict[str, object]:
        return {
            "pipeline": self.paths.pipeline,
            "cut": window.cut_id,
            "resolved_tso": window.resolved_tso,
            "run_id": self.run_id,
        }

    def _publish(
        self,
        window: Window,
        streams: StreamProgress,
        entries: tuple[MirrorEntry, ...],
        counts: dict[TableName, TableCounts],
        totals: CutTotals,
    ) -> None:
        """The one commit that makes the cut visible: it comes after every mirror's last commit."""
        row = (
            window.cut_id,
            window.resolved_tso,
            tso_datetime(window.resolved_tso),
            window.last_batch,
            self.run_id,
            datetime.now(timezone.utc),
            totals.changes,
            totals.applied,
            totals.superseded,
            totals.rejected,
            totals.late,
            totals.pending,
            streams.held_by,
            [
                (
                    entry.name.database,
                    entry.name.table,
                    entry.mirror_id,
                    entry.path.removeprefix(f"{self.paths.home}/"),
                    entry.version,
                    entry.rows,
                    entry.columns,
                    list(entry.gaps),
                )
                for entry in entries
            ],
            [(name.database, name.table) for name in sorted(counts)],
        )
        frame = self.spark.createDataFrame([row], CUTS_SCHEMA)
        commit = Commit(f"cdc:{self.paths.pipeline}:consistent_cuts", window.cut_id, self._note(window))
        append_once(frame, self.paths.table("consistent_cuts"), commit)


def _row_set(index: int, step: ApplyRows) -> RowSet:
    key = step.state.schema.row_key
    return RowSet(index, step.source, step.segments, key or step.state.schema.column_names, keyless=not key)


def published_entries(cut: PublishedCut, paths: LakePaths) -> tuple[MirrorEntry, ...]:
    """The mirrors of a published cut, in name order, where they are now: a lake may have been moved as a whole."""
    return tuple(
        MirrorEntry(
            name := TableName(row["database"], row["table"]),
            row["mirror_id"],
            paths.mirror(name),
            row["version"],
            row["rows"],
            row["columns"],
            tuple(row["gaps"]),
        )
        for row in cut.mirrors
    )


def _counts(results: Iterable[StepResult]) -> dict[TableName, TableCounts]:
    """What happened to each mirror, under the name that it has at the end of the cut."""
    found = list(results)
    final = {result.step.state.mirror_id: result.step.state.name for result in found}
    counts: dict[TableName, TableCounts] = defaultdict(TableCounts)
    for result in found:
        of_table = counts[final[result.step.state.mirror_id]]
        of_table.inserted += result.merged.inserted
        of_table.updated += result.merged.updated
        of_table.deleted += result.merged.deleted
        of_table.changes += result.step.changes if isinstance(result.step, ApplyRows) else 0
        of_table.bad_rows += result.bad_rows
        of_table.zero_dates += result.zero_dates
        of_table.seconds += result.seconds
    return dict(counts)
