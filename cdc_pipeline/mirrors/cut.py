"""One consistent cut: all mirrors taken to the same resolved TSO, then published in one row of `consistent_cuts`."""

from __future__ import annotations

import sys
import time
import uuid
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.mirrors.apply import Mirrors, StepResult
from cdc_pipeline.mirrors.column_rules import ColumnRules
from cdc_pipeline.mirrors.contested_keys import contested_settled
from cdc_pipeline.mirrors.cut_inputs import CutInputs, StoredMirrors
from cdc_pipeline.mirrors.cut_planning import CutPlanning
from cdc_pipeline.mirrors.cut_report import CutReport, MirrorEntry, TableCounts, published_entries, with_held_gaps
from cdc_pipeline.mirrors.cut_rows import CutRows
from cdc_pipeline.mirrors.cut_streams import CutStreams
from cdc_pipeline.mirrors.ddl_of_cut import close_events
from cdc_pipeline.mirrors.holding import (
    approved_statements,
    held_rows,
    released_tables,
)
from cdc_pipeline.mirrors.order import net_changes, row_entries
from cdc_pipeline.mirrors.planned_cut import PlannedCut
from cdc_pipeline.mirrors.policy import DdlPolicy
from cdc_pipeline.mirrors.progress import NO_CUT, PublishedCut, StreamProgress, published_cut, stream_progress
from cdc_pipeline.mirrors.publication import CutSettings, publish
from cdc_pipeline.mirrors.redeliveries import POSITION
from cdc_pipeline.mirrors.restored import cut_to_go_on_from
from cdc_pipeline.mirrors.row_steps import RowSteps
from cdc_pipeline.mirrors.segments import with_segments
from cdc_pipeline.mirrors.selection import ALL_TABLES, TableSelection
from cdc_pipeline.mirrors.soft_deletes import live_rows
from cdc_pipeline.mirrors.stages import Stages
from cdc_pipeline.mirrors.state import MirrorState
from cdc_pipeline.mirrors.step_commits import CutCommits
from cdc_pipeline.mirrors.steps import ApplyRows, step_names
from cdc_pipeline.mirrors.stored_plan import begun_cut, write_down, write_down_earlier
from cdc_pipeline.mirrors.totals import NO_CHANGES, CutTotals
from cdc_pipeline.mirrors.window import Window, next_window, pending_after
from cdc_pipeline.resources.delta import row_count, table_state
from cdc_pipeline.resources.delta_log import require_whole_logs
from cdc_pipeline.resources.few_rows import for_rows
from cdc_pipeline.resources.folder_moves import finish_moves
from cdc_pipeline.resources.threads import side_by_side
from cdc_pipeline.schemas.gaps import in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.mirrors.earlier_plan import EarlierPlan
    from cdc_pipeline.mirrors.planner import CutPlan
    from cdc_pipeline.resources.lake import LakePaths
    from cdc_pipeline.schemas.table import TableName


@dataclass(frozen=True)
class CutMaker:
    """Makes cuts of one pipeline. `report` is told of progress in one line at a time; `keys` are the columns that identify
    a row of a table, by `database.table`, for tables whose definition has no key; `policy` is what DDL may do;
    `selection` is which tables are mirrored, under which names (those that `keys` and `policy` speak of); `columns` are
    what mirrors carry beside upstream's columns."""

    spark: SparkSession
    paths: LakePaths
    run_id: str
    time_zone: str
    side_by_side: int
    report: Callable[[str], None]
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    policy: DdlPolicy = field(default_factory=DdlPolicy)
    selection: TableSelection = ALL_TABLES
    columns: ColumnRules = field(default_factory=ColumnRules)

    @property
    def settings(self) -> CutSettings:
        return CutSettings(self.time_zone, self.keys, self.policy, self.selection, self.columns)

    def brought_up_to_date(self, up_to: int | None = None) -> CutReport:
        """Finishes a cut that was begun, then takes the mirrors as far as the streams are complete, or to the TSO `up_to`
        where that is less. Raises LakeError where the log of a table that it needs is damaged."""
        started = time.monotonic()
        require_whole_logs(self.paths.own_tables)
        for place in finish_moves(self.spark, self.paths.moves):
            self.report(f"{place} is where it was on its way to when a run died")
        with for_rows(self.spark, 0):
            published = cut_to_go_on_from(self.spark, self.paths)
            streams = stream_progress(self.spark, self.paths, published).limited(up_to)
        report: CutReport | None = None
        if begun := begun_cut(self.spark, self.paths, published, self.columns.salt):
            self.report(f"finishing cut {begun.window.cut_id}, which an earlier run began")
            report = self._finished(begun, published, streams)
            published = published_cut(self.spark, self.paths)
        inputs = self._inputs()
        returning = bool(released_tables(published.held, inputs.approved))
        another = published.cut_id > 0 and published.selection != self.selection
        if window := next_window(published, streams, returning=returning or another):
            report = self._cut(window, published, streams, inputs)
        if report is None:
            entries = with_held_gaps(published_entries(published, self.paths), published.held)
            waiting = pending_after(published, streams, self._table("change_log")) if streams.last_batch else 0
            totals = replace(NO_CHANGES, pending=waiting)
            report = CutReport(
                False,
                published.cut_id,
                published.resolved_tso,
                streams,
                entries,
                totals=totals,
                held=published.held,
                sources=published.sources,
            )
            if waiting:
                self.report(f"{waiting} row changes wait: {streams.what_holds()}")
        return replace(report, seconds=time.monotonic() - started)

    def from_the_beginning(self, resolved_tso: int | None, last_batch: int) -> CutReport:
        """The first cut of an empty lake: all changes up to there, in one."""
        rows = stream_progress(self.spark, self.paths).new_row_changes
        streams = StreamProgress(last_batch, resolved_tso is not None, resolved_tso, None, (), new_row_changes=rows)
        return self._cut(Window(1, None, resolved_tso, 0, last_batch), NO_CUT, streams, self._inputs())

    def _cut(self, window: Window, published: PublishedCut, streams: StreamProgress, inputs: CutInputs) -> CutReport:
        """A cut that nobody has begun."""
        stages = Stages()
        with for_rows(self.spark, self._rows_to_look_at(window, published, streams)):
            planned, rows = self._planning(window, published, inputs, self.settings).planned()
        try:
            with for_rows(self.spark, 1):
                stands = write_down(self.spark, self.paths, planned, self.run_id)
            if stands is planned:
                stages.ended("plan")
                return self._carried_out(planned, rows, published, streams, stages, resumed=False)
        finally:
            rows.close()
        self.report(f"another run was first to begin cut {window.cut_id}: it is carried out as that one has planned it")
        return self._finished(stands, published, streams)

    def _finished(self, begun: PlannedCut | EarlierPlan, published: PublishedCut, streams: StreamProgress) -> CutReport:
        """A cut that another run has begun, as that one has planned it. Of an earlier version's plan the steps are not
        known: they are planned anew, once."""
        stages = Stages()
        with for_rows(self.spark, self._rows_to_look_at(begun.window, published, streams)):
            if isinstance(begun, PlannedCut):
                planned, rows = begun, self._rows_of(begun, published)
            else:
                settings = replace(self.settings, selection=begun.selection, columns=begun.columns)
                inputs = CutInputs.of(begun, self._stored)
                planned, rows = self._planning(begun.window, published, inputs, settings).planned()
                planned = replace(planned, numbering="hundreds")
                write_down_earlier(self.spark, self.paths, planned, self.run_id)
        stages.ended("plan")
        try:
            return self._carried_out(planned, rows, published, streams, stages, resumed=True)
        finally:
            rows.close()

    def _planning(
        self, window: Window, published: PublishedCut, inputs: CutInputs, settings: CutSettings
    ) -> CutPlanning:
        return CutPlanning(self.spark, self.paths, settings, window, published, inputs, self.report)

    def _rows_of(self, planned: PlannedCut, published: PublishedCut) -> CutRows:
        log = planned.settings.selection.selected(self._table("change_log"))
        return CutRows(planned.window, planned.rows, log, self._table, waited=published.pending > 0)

    def _carried_out(
        self,
        planned: PlannedCut,
        rows: CutRows,
        published: PublishedCut,
        streams: StreamProgress,
        stages: Stages,
        *,
        resumed: bool,
    ) -> CutReport:
        window, plan, events = planned.window, planned.plan, planned.rows.events
        count = self._rows_to_look_at(window, published, streams)
        results, counted = self._steps_carried_out(planned, rows.changes, count, stages, resumed=resumed)
        with for_rows(self.spark, count):
            found = rows.delivered.where("NOT taken").agg(F.count("*"), F.max("timestamp")).first()
            assert found is not None
            held = Counter(held_rows(rows.changes, plan.held_from))
            duplicates = 0
            if rows.repeated is not None:
                repeated = with_segments(rows.delivered.join(rows.repeated, list(POSITION), "left_semi"), events)
                staying = held_rows(repeated, plan.held_from)
                duplicates = repeated.where("NOT taken").count() - sum(staying.values())
                held.update(staying)
            taken_in = found[0] - sum(held.values())
        seen = CutStreams(
            planned.settings.selection,
            published,
            window,
            self._table("change_log"),
            self._table("ddl_history"),
            lambda name: None,
            planned.settings.time_zone,
        )
        waits = tuple(replace(table, rows=table.rows + held.get(table.name, 0)) for table in plan.held)
        rejected = sum(result.counts.rejected for result in results)
        totals = CutTotals(
            changes=taken_in,
            # of tables whose rows are let in anew some were counted before
            applied=min(counted, taken_in - duplicates) - rejected,
            rejected=rejected,
            duplicates=duplicates,
            late=planned.late.changes,
            breaches=planned.late.unseen,
            pending=seen.pending() + sum(table.rows for table in waits),
            filtered=seen.filtered() + planned.held_left_out,
        )
        report = CutReport(
            True,
            window.cut_id,
            window.resolved_tso,
            streams,
            with_held_gaps(self._entries(plan, published), waits),
            _counts(results),
            totals,
            planned.late.breaches,
            waits,
            sources=planned.sources,
            selection_changes=planned.selection_changes,
        )
        with for_rows(self.spark, len(events)):
            close_events(self.spark, self.paths, planned.outcomes, self._note(window))
            stages.ended("counts")
            publish(self.spark, self.paths, window, report, self._note(window), planned.settings)
        stages.ended("publish")
        versions = {row["mirror_id"]: row["version"] for row in published.mirrors}
        return replace(report, stages=stages.seconds, versions_before=versions, newest_record=_instant(found[1]))

    # ---- inputs

    @staticmethod
    def _rows_to_look_at(window: Window, published: PublishedCut, streams: StreamProgress) -> int:
        """About how many row changes the cut reads. Without watermarks those of earlier cuts may come along: any number."""
        return sys.maxsize if window.resolved_tso is None else published.pending + streams.new_row_changes

    def _table(self, name: str) -> DataFrame:
        return self.spark.read.format("delta").load(self.paths.table(name))

    def _inputs(self) -> CutInputs:
        return CutInputs(self._stored, approved_statements(self.spark, self.paths), self.columns)

    @property
    def _stored(self) -> StoredMirrors:
        return StoredMirrors(self.spark, self.paths, self._table("ddl_history"), self.selection)

    # ---- steps

    def _steps_carried_out(
        self, planned: PlannedCut, changes: DataFrame, rows: int, stages: Stages, *, resumed: bool
    ) -> tuple[list[StepResult], int]:
        """The steps' results, and how many of the changes are left once each row's are folded to its last."""
        row_sets = {item.step: item for item in planned.row_sets}
        view = f"net_{uuid.uuid4().hex}"
        entries = row_entries(changes, row_sets.values(), exact=planned.window.resolved_tso is not None)
        net = net_changes(entries).persist()
        with for_rows(self.spark, rows):
            counted, contested = net.agg(F.count_if("counts"), F.count_if("contested")).first() or (0, 0)
            if contested:
                unsettled, net = net, contested_settled(entries, net).persist()
                counted = net.where("counts").count()
                unsettled.unpersist()
        stages.ended("net changes")
        net.createOrReplaceGlobalTempView(view)
        steps = RowSteps(
            self.spark, self.paths, planned.settings.time_zone, view, resumed, planned.settings.columns.salt
        )
        note = self._note(planned.window)
        commits = CutCommits(self.paths.pipeline, planned.window.cut_id, note, planned.numbering)
        writer = Mirrors(self.spark, self.paths, planned.plan.steps, row_sets, commits, steps, self.side_by_side)
        try:
            return writer.carried_out(self.report), counted
        finally:
            stages.ended("steps")
            self.spark.catalog.dropGlobalTempView(view)
            net.unpersist()

    # ---- results

    def _entries(self, plan: CutPlan, published: PublishedCut) -> tuple[MirrorEntry, ...]:
        """All mirrors after the cut: those that the plan left alone as they were, the others as they are now."""
        touched = sorted({name for step in plan.steps for name in step_names(step)})
        entries = {entry.name: entry for entry in published_entries(published, self.paths)}
        counted = side_by_side(self.spark, self.entry, touched, self.side_by_side)
        found = dict(zip(touched, counted, strict=True))
        entries.update({name: entry for name, entry in found.items() if entry is not None})
        return tuple(entries[name] for name in sorted(entries) if found.get(name, entries[name]) is not None)

    def entry(self, name: TableName) -> MirrorEntry | None:
        """The mirror of that name as it is now."""
        path = self.paths.mirror(name)
        table = table_state(self.spark, path)
        if table is None:
            return None
        state = MirrorState.from_properties(table.properties)
        return MirrorEntry(
            name,
            state.mirror_id,
            path,
            table.version,
            self._rows(path, state),
            len(state.schema.columns),
            in_words(state.gaps),
            state.keeps_deleted,
        )

    def _rows(self, path: str, state: MirrorState) -> int:
        """How many rows upstream has."""
        if not state.keeps_deleted:
            return row_count(self.spark, path)
        return live_rows(self.spark.read.format("delta").load(path), keeps_deleted=True).count()

    def _note(self, window: Window) -> dict[str, object]:
        return {
            "pipeline": self.paths.pipeline,
            "cut": window.cut_id,
            "resolved_tso": window.resolved_tso,
            "run_id": self.run_id,
        }


def _instant(local: datetime | None) -> datetime | None:
    """A timestamp as PySpark gives it, in the time zone of this process."""
    return None if local is None else local.astimezone(timezone.utc)


def _counts(results: Iterable[StepResult]) -> dict[TableName, TableCounts]:
    """What happened to each mirror, under the name that it has at the end of the cut."""
    found = list(results)
    final = {result.step.state.mirror_id: result.step.state.name for result in found}
    counts: dict[TableName, TableCounts] = defaultdict(TableCounts)
    for result in found:
        of_table = counts[final[result.step.state.mirror_id]]
        of_table.inserted += result.counts.merged.inserted
        of_table.updated += result.counts.merged.updated
        of_table.deleted += result.counts.merged.deleted
        of_table.changes += result.step.changes if isinstance(result.step, ApplyRows) else 0
        of_table.bad_rows += result.counts.bad_rows
        of_table.zero_dates += result.counts.zero_dates
        of_table.seconds += result.seconds
    return dict(counts)
