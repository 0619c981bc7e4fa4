"""One consistent cut: all mirrors taken to the same resolved TSO, then published in one row of `consistent_cuts`."""

from __future__ import annotations

import sys
import time
import uuid
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.claims import kept_claims
from cdc_pipeline.dialects.releases import with_replacements
from cdc_pipeline.dialects.types import message_types
from cdc_pipeline.mirrors.apply import Mirrors, StepResult
from cdc_pipeline.mirrors.carried_rows import carried
from cdc_pipeline.mirrors.column_rules import ColumnRules, check_order, not_kept, nowhere
from cdc_pipeline.mirrors.contested_keys import contested_settled
from cdc_pipeline.mirrors.cut_inputs import CutInputs, StoredMirrors
from cdc_pipeline.mirrors.cut_report import CutReport, MirrorEntry, TableCounts, published_entries, with_held_gaps
from cdc_pipeline.mirrors.cut_streams import CutStreams
from cdc_pipeline.mirrors.ddl_of_cut import DdlOfCut, altered_at_watermark, carried_out_before, close_events
from cdc_pipeline.mirrors.dead_letters import lost_rows
from cdc_pipeline.mirrors.derived_values import derived_problems
from cdc_pipeline.mirrors.holding import (
    approved_statements,
    held_rows,
    released_tables,
    returning_events,
    with_returned,
)
from cdc_pipeline.mirrors.identity import Identity
from cdc_pipeline.mirrors.keys import key_columns
from cdc_pipeline.mirrors.late import late_changes
from cdc_pipeline.mirrors.late_statements import came_before_statements, let_in_again, tables_that_come_again
from cdc_pipeline.mirrors.order import RowSet, net_changes, row_entries
from cdc_pipeline.mirrors.plan_book import PlanBook
from cdc_pipeline.mirrors.planner import Permissions, Planner
from cdc_pipeline.mirrors.policy import DdlPolicy
from cdc_pipeline.mirrors.progress import NO_CUT, PublishedCut, StreamProgress, published_cut, stream_progress
from cdc_pipeline.mirrors.publication import CutSettings, publish
from cdc_pipeline.mirrors.redeliveries import POSITION, repeated_positions
from cdc_pipeline.mirrors.restored import cut_to_go_on_from
from cdc_pipeline.mirrors.row_groups import RowGroup, row_groups, with_types
from cdc_pipeline.mirrors.segments import not_emptied, segmented, with_segments
from cdc_pipeline.mirrors.selection import ALL_TABLES, TableSelection
from cdc_pipeline.mirrors.soft_deletes import live_rows
from cdc_pipeline.mirrors.stages import Stages
from cdc_pipeline.mirrors.state import MirrorState
from cdc_pipeline.mirrors.step_order import later_places
from cdc_pipeline.mirrors.steps import ApplyRows, step_names
from cdc_pipeline.mirrors.totals import NO_CHANGES, CutTotals
from cdc_pipeline.mirrors.window import Window, begun_cut, next_window, pending_after, write_down
from cdc_pipeline.resources.delta import row_count, table_state
from cdc_pipeline.resources.delta_log import require_whole_logs
from cdc_pipeline.resources.few_rows import for_rows
from cdc_pipeline.resources.threads import side_by_side
from cdc_pipeline.schemas.gaps import in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.dialects.types import MessageTypes, Place
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
        with for_rows(self.spark, 0):
            published = cut_to_go_on_from(self.spark, self.paths)
            streams = stream_progress(self.spark, self.paths, published).limited(up_to)
        report: CutReport | None = None
        if begun := begun_cut(self.spark, self.paths, published, self.columns.salt):
            self.report(f"finishing cut {begun.window.cut_id}, which an earlier run began")
            report = self._cut(begun.window, published, streams, CutInputs.of(begun, self._stored))
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
        stages = Stages()
        rows = self._rows_to_look_at(window, published, streams)
        few = partial(for_rows, self.spark, rows)
        with few():
            history, selection = self._table("ddl_history"), inputs.selection
            seen = CutStreams(
                selection, published, window, self._table("change_log"), history, inputs.mirror, self.time_zone
            )
            log, waiting = seen.log, seen.held()
            released = released_tables(waiting, inputs.approved)
            ddl = DdlOfCut.read(window, history, returning_events(history, released, window, seen.mirrored))
            ddl, sources = seen.statements(ddl)
            again_of = tables_that_come_again(ddl.fresh, inputs.mirror, lambda state: not key_columns(state, self.keys))
            late = late_changes(window, log, lambda: altered_at_watermark(window, history, seen.mirrored))
            delivered = window.changes(log, waited=published.pending > 0, again=again_of, also=late.taken_in)
            cuts = self._table("consistent_cuts") if released else None
            delivered = with_returned(delivered, log, cuts, released, ddl.fresh, window).persist()
            raw = with_replacements(self.spark, self.paths, self._table("raw_topic_snapshot"))
            claims = partial(kept_claims, self.spark, self.paths)
        kept = [delivered]
        try:
            with few():

                def types_of(places: Mapping[Place, str]) -> Mapping[Place, MessageTypes]:
                    return message_types(raw, places, claims)

                again = repeated_positions(delivered, log, self._table("watermarks"), window)
                once = delivered
                if again is not None:
                    kept.append(again.persist())
                    once = delivered.join(again, list(POSITION), "left_anti")
                past = carried_out_before(window, history, delivered, seen.mirrored)
                moved = carried(not_emptied(once, past), past, types_of)
                placed = segmented(moved.changes, ddl.fresh, lambda name: inputs.mirror(name) is not None, types_of)
                changes = let_in_again(placed.changes, again_of)
                groups = with_types(row_groups(changes), raw, changes, inputs.mirror, claims)
                lost = lost_rows(self.spark, self.paths, window, selection)
                known = [*((breach.name, breach.gap) for breach in late.breaches), *ddl.missed()]
                known += [(name, gap) for name, gaps in moved.gaps.items() for gap in gaps]
                known += came_before_statements(changes, again_of).items()
                for name, gap in known:
                    lost[name] = (*lost.get(name, ()), gap)
                permissions = Permissions(
                    self.policy,
                    inputs.approved,
                    tuple(table for table in waiting if table.name not in released),
                    frozenset(released),
                )
                book = PlanBook(
                    groups, inputs.mirror, published.names, window.cut_id, self.time_zone, inputs.columns, self.keys
                )
                selection_changes = seen.plan_change(book)
                for line in selection_changes:
                    self.report(line)
                plan = Planner(
                    book,
                    lost=lost,
                    permissions=permissions,
                    ended=lambda name: inputs.ended(name, window),
                    doubts=placed.doubts,
                ).plan(ddl.fresh)
                if tables := self._keyless_despite_messages(plan, groups, window):
                    more = repeated_positions(changes, log, self._table("watermarks"), window, tables)
                    if more is not None:
                        kept.append(more.persist())
                        again = more if again is None else again.unionByName(more)
                        changes = changes.join(more, list(POSITION), "left_anti")
                check_order(plan.steps, window.resolved_tso, self.paths.pipeline)
                for name, columns in nowhere(inputs.columns, plan.steps).items():
                    self.report(f"mask: {name} has no column {', '.join(columns)}")
                for name, reason in not_kept(inputs.columns, plan.steps, book.key).items():
                    self.report(f"soft_delete: {name} does not keep what upstream deletes: {reason}")
                for line in derived_problems(self.spark, plan.steps):
                    self.report(line)
                if not inputs.resumed:
                    write_down(self.spark, self.paths, inputs.begun(window), self.run_id)
            stages.ended("plan")
            results, counted = self._carry_out(plan, changes, window, rows, stages, resumed=inputs.resumed)
            with few():
                found = delivered.where("NOT taken").agg(F.count("*"), F.max("timestamp")).first()
                assert found is not None
                held = Counter(held_rows(changes, plan.held_from))
                duplicates = 0
                if again is not None:
                    repeated = with_segments(delivered.join(again, list(POSITION), "left_semi"), ddl.fresh)
                    staying = held_rows(repeated, plan.held_from)
                    duplicates = repeated.where("NOT taken").count() - sum(staying.values())
                    held.update(staying)
                taken_in = found[0] - sum(held.values())
        finally:
            for frame in kept:
                frame.unpersist()
        waits = tuple(replace(table, rows=table.rows + held.get(table.name, 0)) for table in plan.held)
        rejected = sum(result.rejected for result in results)
        totals = CutTotals(
            changes=taken_in,
            # of tables whose rows are let in anew some were counted before
            applied=min(counted, taken_in - duplicates) - rejected,
            rejected=rejected,
            duplicates=duplicates,
            late=late.changes,
            breaches=late.unseen,
            pending=seen.pending() + sum(table.rows for table in waits),
            filtered=seen.filtered(),
        )
        entries = with_held_gaps(self._entries(plan, published), waits)
        report = CutReport(
            True,
            window.cut_id,
            window.resolved_tso,
            streams,
            entries,
            _counts(results),
            totals,
            late.breaches,
            waits,
            sources=sources,
            selection_changes=selection_changes,
        )
        with for_rows(self.spark, len(ddl.fresh)):
            close_events(self.spark, self.paths, ddl.outcomes(plan), self._note(window))
            stages.ended("counts")
            settings = replace(self.settings, selection=selection, columns=inputs.columns)
            publish(self.spark, self.paths, window, report, self._note(window), settings)
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

    def _carry_out(
        self, plan: CutPlan, changes: DataFrame, window: Window, rows: int, stages: Stages, *, resumed: bool
    ) -> tuple[list[StepResult], int]:
        """The steps' results, and how many of the changes are left once each row's are folded to its last."""
        row_sets = {
            index: self._row_set(index, step) for index, step in enumerate(plan.steps) if isinstance(step, ApplyRows)
        }
        view = f"net_{uuid.uuid4().hex}"
        entries = row_entries(changes, row_sets.values(), exact=window.resolved_tso is not None)
        net = net_changes(entries).persist()
        with for_rows(self.spark, rows):
            counted, contested = net.agg(F.count_if("counts"), F.count_if("contested")).first() or (0, 0)
            if contested:
                unsettled, net = net, contested_settled(entries, net).persist()
                counted = net.where("counts").count()
                unsettled.unpersist()
        stages.ended("net changes")
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
            self.columns.salt,
        )
        try:
            return writer.carried_out(plan.steps, row_sets, self.report), counted
        finally:
            stages.ended("steps")
            self.spark.catalog.dropGlobalTempView(view)
            net.unpersist()

    def _keyless_despite_messages(self, plan: CutPlan, groups: Iterable[RowGroup], window: Window) -> set[TableName]:
        """The tables whose messages name a key that their mirrors do not have: what came twice of them has to be found by
        where it stands, as of any table without a key."""
        if window.resolved_tso is None:
            return set()  # then all changes are looked at
        named = {group.name for group in groups if group.key_names}
        return {
            step.source
            for step in plan.steps
            if isinstance(step, ApplyRows) and step.source in named and not key_columns(step.state, self.keys)
        }

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

    def _row_set(self, index: int, step: ApplyRows) -> RowSet:
        schema = step.state.schema
        key = key_columns(step.state, self.keys)
        columns = tuple(column for name in key or schema.column_names if (column := schema.find(name)) is not None)
        return RowSet(
            index,
            step.source,
            step.segments,
            Identity.by(columns, step.wires, self.time_zone, keyless=not key),
            partial=bool(step.lacking or step.untold),
            soft=bool(key) and step.state.keeps_deleted,
        )


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
        of_table.inserted += result.merged.inserted
        of_table.updated += result.merged.updated
        of_table.deleted += result.merged.deleted
        of_table.changes += result.step.changes if isinstance(result.step, ApplyRows) else 0
        of_table.bad_rows += result.bad_rows
        of_table.zero_dates += result.zero_dates
        of_table.seconds += result.seconds
    return dict(counts)
