"""The decoded tables as one cut reads them, through the pipeline's selection: upstream's names become those of mirrors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.lake.tables.ddl_history import HELD, NOT_INCLUDED
from cdc_pipeline.mirrors.changes.progress import PublishedCut
from cdc_pipeline.mirrors.changes.window import Window
from cdc_pipeline.mirrors.cuts.cut_ddl import CutStatements
from cdc_pipeline.mirrors.model.ddl_events import ddl_event, in_upstream_order
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import DdlOutcome
from cdc_pipeline.mirrors.model.upstream_tables import qualified_events
from cdc_pipeline.mirrors.planning.included_ddl import exclusion_reason, mirrored_event
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.selection_change import SelectionChange
from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
from cdc_pipeline.mirrors.settings.selection import TableSelection
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import Position


@dataclass(frozen=True)
class CutStreams:
    """The change log and the DDL of one cut."""

    selection: TableSelection
    published: PublishedCut
    window: Window
    full_log: DataFrame
    """`change_log`, by upstream's names."""
    history: DataFrame
    """`ddl_history`, by upstream's names."""
    lookup: Callable[[TableName], MirrorState | None]
    """Returns a mirror as the last cut left it."""

    # ---- rows

    @cached_property
    def log(self) -> DataFrame:
        """The change log by the names of mirrors, without excluded tables."""
        return self.selection.selected(self.full_log)

    # ---- DDL

    def route_statements(self, ddl: CutStatements) -> CutStatements:
        """The statements by what they do to mirrors."""
        ddl = replace(ddl, to_apply=tuple(qualified_events(ddl.to_apply, self._tables, self.selection.key)))
        ddl = ddl.routed(self.selection)
        if self.selection_change != SelectionChange():
            ddl = replace(ddl, decided={**self._no_longer_held(), **ddl.decided})
        return ddl

    def _no_longer_held(self) -> dict[Position, DdlOutcome]:
        """Outcomes of held statements that concern only tables that are no longer included."""
        held = in_upstream_order(map(ddl_event, self.history.where(F.col("status") == HELD).collect()))
        return {
            event.position: DdlOutcome(NOT_INCLUDED, [exclusion_reason(event)])
            for event in held
            if event.database and not mirrored_event(event, self.selection).changes
        }

    def _tables(self) -> set[TableName]:
        """The keys of upstream's tables: of mirrors, with rows in the cut, and excluded ones with rows before it."""
        found = [table for state in self._mirrors for table in state.upstream_tables]
        found += _table_names(self.window.rows_in(self.full_log))
        if not self.selection.includes_all:
            found += _table_names(self.selection.excluded(self.window.rows_before(self.full_log)))
        return set(map(self.selection.key, found))

    @property
    def _mirrors(self) -> list[MirrorState]:
        """The mirrors of the last cut, without those of dropped tables, which `ddl_policy` keeps."""
        states = (self.lookup(name) for name in self.published.names)
        return [state for state in states if state is not None and not state.retired]

    # ---- a changed selection

    @cached_property
    def selection_change(self) -> SelectionChange:
        """What the cut does because the selection has changed."""
        before = self.published.selection
        if not self.published.cut_id or before == self.selection:
            return SelectionChange()
        live = {state.name: state.upstream_tables for state in self._mirrors}
        excluded = _table_names(before.excluded(self.window.rows_before(self.full_log)))
        return SelectionChange.from_selections(live, excluded, before, self.selection)

    def held(self) -> tuple[HeldTable, ...]:
        """The tables that earlier cuts left held, by their current keys."""
        return self.selection_change.still_held(self.published.held, self.selection)

    def plan_selection_change(self, draft: PlanDraft) -> tuple[str, ...]:
        """Adds the steps of a changed selection to the empty draft. Returns one sentence for each of its effects."""
        self.selection_change.plan(draft, self.window.cut_id, self.selection)
        return self.selection_change.descriptions(self.selection)


def _table_names(rows: DataFrame) -> list[TableName]:
    """The tables of these row changes, by upstream's names."""
    return [TableName(*row) for row in rows.select("database", "table").distinct().collect()]
