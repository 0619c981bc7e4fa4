"""What a cut is to do: the plan of its window, made of the streams and the mirrors as they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from cdc_pipeline.dialects.claims import kept_claims
from cdc_pipeline.dialects.releases import with_replacements
from cdc_pipeline.mirrors.column_rules import check_order, not_kept, nowhere
from cdc_pipeline.mirrors.cut_rows import CutRows, RowsTold
from cdc_pipeline.mirrors.cut_streams import CutStreams
from cdc_pipeline.mirrors.ddl_of_cut import DdlOfCut, emptied_before
from cdc_pipeline.mirrors.dead_letters import lost_rows
from cdc_pipeline.mirrors.derived_values import derived_problems
from cdc_pipeline.mirrors.holding import released_tables, returning_events
from cdc_pipeline.mirrors.keys import key_columns
from cdc_pipeline.mirrors.late import late_changes
from cdc_pipeline.mirrors.order import RowSet
from cdc_pipeline.mirrors.plan_book import PlanBook
from cdc_pipeline.mirrors.planned_cut import PlannedCut
from cdc_pipeline.mirrors.planner import Permissions, Planner, tables_let_in_anew
from cdc_pipeline.mirrors.row_groups import row_groups, with_types
from cdc_pipeline.mirrors.steps import ApplyRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.mirrors.cut_inputs import CutInputs
    from cdc_pipeline.mirrors.events import DdlEvent
    from cdc_pipeline.mirrors.late import LateChanges
    from cdc_pipeline.mirrors.planner import CutPlan
    from cdc_pipeline.mirrors.progress import PublishedCut
    from cdc_pipeline.mirrors.publication import CutSettings
    from cdc_pipeline.mirrors.window import Window
    from cdc_pipeline.resources.lake import LakePaths
    from cdc_pipeline.schemas.gaps import Gap
    from cdc_pipeline.schemas.table import TableName


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
        ddl = DdlOfCut.read(window, history, returning_events(history, released, window, seen.mirrored))
        ddl, sources = seen.statements(ddl)
        anew = tables_let_in_anew(ddl.fresh, lookup)
        told = RowsTold(ddl.fresh, tuple(anew.items()), tuple(released.values()))
        waited = self.published.pending > 0
        emptied = partial(emptied_before, window, history, mirrored=seen.mirrored)
        rows = CutRows(window, told, seen.log, self._table, waited=waited, emptied=emptied)
        try:
            late = late_changes(window, seen.log)
            book = self._book(rows)
            changes = seen.plan_change(book)
            others = tuple(table for table in waiting if table.name not in released)
            permissions = Permissions(self.settings.policy, self.inputs.approved, others, frozenset(released))
            ended = partial(self.inputs.ended, window=window)
            lost = self._lost(ddl, late)
            plan = Planner(book, lost=lost, permissions=permissions, ended=ended).plan(ddl.fresh)
            check_order(plan.steps, window.resolved_tso, self.paths.pipeline)
            self._tell(plan, book, changes)
        except BaseException:
            rows.close()
            raise
        planned = PlannedCut(
            window,
            self.settings,
            replace(told, emptied=rows.emptied),
            plan,
            tuple(row_sets(plan, self.settings)),
            ddl.settled,
            late,
            sources,
            changes,
            seen.held_left_out,
            hides=self._hides(plan, book, told.events),
        )
        return planned, rows

    def _table(self, name: str) -> DataFrame:
        return self.spark.read.format("delta").load(self.paths.table(name))

    def _book(self, rows: CutRows) -> PlanBook:
        raw = with_replacements(self.spark, self.paths, self._table("raw_topic_snapshot"))
        claims = partial(kept_claims, self.spark, self.paths)
        groups = with_types(row_groups(rows.changes), raw, rows.changes, self.inputs.mirror, claims)
        return PlanBook(
            groups,
            self.inputs.mirror,
            self.published.names,
            self.window.cut_id,
            self.settings.time_zone,
            self.settings.columns,
            self.settings.keys,
        )

    def _lost(self, ddl: DdlOfCut, late: LateChanges) -> dict[TableName, tuple[Gap, ...]]:
        """The gaps that tables have whatever the plan does."""
        lost = lost_rows(self.spark, self.paths, self.window, self.settings.selection)
        for name, gap in [*((breach.name, breach.gap) for breach in late.breaches), *ddl.missed()]:
            lost[name] = (*lost.get(name, ()), gap)
        return lost

    def _hides(self, plan: CutPlan, book: PlanBook, events: Iterable[DdlEvent]) -> bool:
        """Whether a table of the cut has masked columns, or would have."""
        return (
            bool(self.settings.columns.masks)
            or any(step.state.masks for step in plan.steps)
            or any(book.hides(name) for event in events for name in event.names())
        )

    def _tell(self, plan: CutPlan, book: PlanBook, changes: Iterable[str]) -> None:
        for line in changes:
            self.report(line)
        for name, columns in nowhere(self.settings.columns, plan.steps).items():
            self.report(f"mask: {name} has no column {', '.join(columns)}")
        for name, reason in not_kept(self.settings.columns, plan.steps, book.key).items():
            self.report(f"soft_delete: {name} does not keep what upstream deletes: {reason}")
        for line in derived_problems(self.spark, plan.steps):
            self.report(line)


def row_sets(plan: CutPlan, settings: CutSettings) -> Iterable[RowSet]:
    """The rows of each ApplyRows step of the plan."""
    for index, step in enumerate(plan.steps):
        if isinstance(step, ApplyRows):
            key = key_columns(step.state, settings.keys)
            yield RowSet(
                index,
                step.source,
                step.segments,
                key or step.state.schema.column_names,
                keyless=not key,
                partial=bool(step.lacking or step.untold),
                soft=bool(key) and step.state.keeps_deleted,
            )
