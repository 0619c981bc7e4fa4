"""What a cut is to do: the plan of its window, made of the streams and the mirrors as they are."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from cdc_pipeline.dialects.claims import kept_claims
from cdc_pipeline.dialects.message_types import message_types
from cdc_pipeline.dialects.releases import with_replacements
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.paths import first_line
from cdc_pipeline.mirrors.changes.cut_rows import CutRows, RowsTold
from cdc_pipeline.mirrors.changes.dead_letters import lost_rows
from cdc_pipeline.mirrors.changes.held_rows import released_tables, returning_events
from cdc_pipeline.mirrors.changes.late_changes import late_changes
from cdc_pipeline.mirrors.changes.late_ddl import came_before_statements, tables_that_come_again
from cdc_pipeline.mirrors.changes.row_groups import row_groups, with_types
from cdc_pipeline.mirrors.changes.statement_copies import canal_restarts
from cdc_pipeline.mirrors.cuts.cut_ddl import DdlOfCut, altered_at_watermark, carried_out_before
from cdc_pipeline.mirrors.cuts.cut_streams import CutStreams
from cdc_pipeline.mirrors.cuts.planned_cut import PlannedCut
from cdc_pipeline.mirrors.merge.computed_values import derived_problems
from cdc_pipeline.mirrors.merge.net_changes import RowSet
from cdc_pipeline.mirrors.merge.row_identity import Identity
from cdc_pipeline.mirrors.model.row_key import key_columns
from cdc_pipeline.mirrors.model.steps import ApplyRows
from cdc_pipeline.mirrors.planning.guarded_planner import GuardedPlanner
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import Permissions, Planner
from cdc_pipeline.mirrors.settings.column_rules import check_order, not_kept, nowhere

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.dialects.message_types import MessageTypes
    from cdc_pipeline.gaps import Gap
    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.changes.late_changes import LateChanges
    from cdc_pipeline.mirrors.changes.progress import PublishedCut
    from cdc_pipeline.mirrors.changes.row_groups import RowGroup
    from cdc_pipeline.mirrors.changes.window import Window
    from cdc_pipeline.mirrors.cuts.cut_inputs import CutInputs
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.planning.planner import CutPlan
    from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
    from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
    from cdc_pipeline.mysql.model.table import TableName
    from cdc_pipeline.sources.places import Place

    _Made = tuple[CutPlan, PlanDraft, tuple[str, ...]]
    """A plan, the draft that it was made in, and what a change of the selection does."""


@dataclass(frozen=True)
class CutPlanning:
    """Plans one cut. `settings` are those that it is made with; `report` is told what users should know of the plan."""

    spark: SparkSession
    paths: LakePaths
    settings: CutSettings
    window: Window
    published: PublishedCut
    inputs: CutInputs
    report: Callable[[str], None]

    def planned(self) -> tuple[PlannedCut, CutRows]:
        """The plan, and the rows that it was made on: close them. Nothing is written."""
        window, lookup = self.window, self.inputs.mirror
        history = self._table("ddl_history")
        seen = CutStreams(
            self.settings.selection,
            self.published,
            window,
            self._table("change_log"),
            history,
            lookup,
            self.settings.time_zone,
        )
        waiting = seen.held()
        released = released_tables(waiting, self.inputs.approved)
        returning = returning_events(history, released, window, seen.mirrored)
        ddl = DdlOfCut.read(window, history, returning, partial(canal_restarts, self._table("change_log"), history))
        ddl, sources = seen.statements(ddl)
        late, told = self._told(ddl, released.values(), seen)
        waited = self.published.pending > 0
        rows = CutRows(window, told, seen.log, self._table, waited=waited, finder=_Finder(self, history, seen))
        try:
            groups = self._groups(rows)
            others = tuple(table for table in waiting if table.name not in released)
            permissions = Permissions(self.settings.policy, self.inputs.approved, others, frozenset(released))
            ended = partial(self.inputs.ended, window=window)
            lost = self._lost(ddl, late, rows)

            def made(kind: type[Planner]) -> _Made:
                book = self._book(groups)
                changes = seen.plan_change(book)
                planner = kind(book, lost=lost, permissions=permissions, ended=ended, doubts=rows.doubts)
                return planner.plan(ddl.fresh), book, changes

            plan, book, changes = self._made_by(made)
            check_order(plan.steps, window.resolved_tso, self.paths.pipeline)
            if keyless := self._keyless_despite_messages(plan, groups):
                repeated = rows.repeated
                rows.leave_out_repeated(keyless)
                if rows.repeated is not repeated:
                    # a run that finishes the cut finds as many rows as the steps say
                    groups = self._groups(rows)
                    lost = self._lost(ddl, late, rows)
                    plan, book, changes = self._made_by(made)
            self._tell(plan, book, changes)
        except BaseException:
            rows.close()
            raise
        planned = PlannedCut(
            window,
            self.settings,
            rows.told,
            plan,
            tuple(row_sets(plan, self.settings)),
            ddl.settled,
            late,
            sources,
            changes,
            seen.held_left_out,
            hides=self._hides(plan, book, told.events),
            plan_id=uuid.uuid4().hex,
        )
        return planned, rows

    def _made_by(self, made: Callable[[type[Planner]], _Made]) -> _Made:
        """The plan; where that fails by a fault of ours, table by table."""
        try:
            return made(Planner)
        except CdcError:
            raise
        except Exception as error:
            said = f"the plan of cut {self.window.cut_id} failed ({first_line(error)})"
            self.report(f"{said}: made again table by table")
            return made(GuardedPlanner)

    def _table(self, name: str) -> DataFrame:
        return self.spark.read.format("delta").load(self.paths.table(name))

    def _told(self, ddl: DdlOfCut, released: Iterable[HeldTable], seen: CutStreams) -> tuple[LateChanges, RowsTold]:
        """What is late, and by what the rows of the cut are told as far as that is known without a look at them."""
        window, history = self.window, self._table("ddl_history")
        keys = self.settings.keys
        again = tables_that_come_again(ddl.fresh, self.inputs.mirror, lambda state: not key_columns(state, keys))
        altered = cache(lambda: tuple(sorted(altered_at_watermark(window, history, seen.mirrored))))
        late = late_changes(window, seen.log, altered)
        told = RowsTold(ddl.fresh, tuple(again.items()), tuple(released), at_watermark=late.at_watermark)
        return late, replace(told, altered=altered()) if late.at_watermark else told

    @property
    def raw(self) -> DataFrame:
        return with_replacements(self.spark, self.paths, self._table("raw_topic_snapshot"))

    @property
    def claims(self) -> Callable[[], DataFrame | None]:
        return partial(kept_claims, self.spark, self.paths)

    def _groups(self, rows: CutRows) -> list[RowGroup]:
        return with_types(row_groups(rows.changes), self.raw, rows.changes, self.inputs.mirror, self.claims)

    def _book(self, groups: Iterable[RowGroup]) -> PlanDraft:
        return PlanDraft(
            groups,
            self.inputs.mirror,
            self.published.names,
            self.window.cut_id,
            self.settings.time_zone,
            self.settings.columns,
            self.settings.keys,
        )

    def _lost(self, ddl: DdlOfCut, late: LateChanges, rows: CutRows) -> dict[TableName, tuple[Gap, ...]]:
        """The gaps that tables have whatever the plan does."""
        lost = lost_rows(self.spark, self.paths, self.window, self.settings.selection)
        known = [*((breach.name, breach.gap) for breach in late.breaches), *ddl.missed()]
        known += [(name, gap) for name, gaps in rows.gaps.items() for gap in gaps]
        known += came_before_statements(rows.changes, dict(rows.told.again)).items()
        for name, gap in known:
            lost[name] = (*lost.get(name, ()), gap)
        return lost

    def _keyless_despite_messages(self, plan: CutPlan, groups: Iterable[RowGroup]) -> set[TableName]:
        """The tables whose messages name a key that their mirrors do not have: what came twice of them has to be found by
        where it stands, as of any table without a key."""
        if self.window.resolved_tso is None:
            return set()  # then all changes are looked at
        named = {group.name for group in groups if group.key_names}
        return {
            step.source
            for step in plan.steps
            if isinstance(step, ApplyRows) and step.source in named and not key_columns(step.state, self.settings.keys)
        }

    def _hides(self, plan: CutPlan, book: PlanDraft, events: Iterable[DdlEvent]) -> bool:
        """Whether a table of the cut has masked columns, or would have."""
        return (
            bool(self.settings.columns.masks)
            or any(step.state.masks for step in plan.steps)
            or any(book.has_masks(name) for event in events for name in event.names())
        )

    def _tell(self, plan: CutPlan, book: PlanDraft, changes: Iterable[str]) -> None:
        for line in changes:
            self.report(line)
        for name, columns in nowhere(self.settings.columns, plan.steps).items():
            self.report(f"mask: {name} has no column {', '.join(columns)}")
        for name, reason in not_kept(self.settings.columns, plan.steps, book.key).items():
            self.report(f"soft_delete: {name} does not keep what upstream deletes: {reason}")
        for line in derived_problems(self.spark, plan.steps):
            self.report(line)


@dataclass(frozen=True)
class _Finder:
    """A `RowFinder`: by the lake as it is."""

    planning: CutPlanning
    history: DataFrame
    seen: CutStreams

    def past(self, delivered: DataFrame) -> Sequence[DdlEvent]:
        return carried_out_before(self.planning.window, self.history, delivered, self.seen.mirrored)

    def is_known(self, name: TableName) -> bool:
        return self.planning.inputs.mirror(name) is not None

    def types_of(self, places: Mapping[Place, str]) -> Mapping[Place, MessageTypes]:
        return message_types(self.planning.raw, places, self.planning.claims)


def row_sets(plan: CutPlan, settings: CutSettings) -> Iterable[RowSet]:
    """The rows of each ApplyRows step of the plan."""
    for index, step in enumerate(plan.steps):
        if isinstance(step, ApplyRows):
            schema, key = step.state.schema, key_columns(step.state, settings.keys)
            columns = tuple(column for name in key or schema.column_names if (column := schema.find(name)) is not None)
            yield RowSet(
                index,
                step.source,
                step.segments,
                Identity.by(columns, step.wires, settings.time_zone, keyless=not key),
                partial=bool(step.lacking or step.untold),
                soft=bool(key) and step.state.keeps_deleted,
            )
