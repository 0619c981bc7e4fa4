"""The decoded tables as one cut reads them, through the pipeline's selection: upstream's names become those of mirrors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.lake.tables.ddl_history import DUPLICATE, HELD, NOT_INCLUDED
from cdc_pipeline.mirrors.model.ddl_events import ddl_event, in_upstream_order
from cdc_pipeline.mirrors.model.ddl_outcome import DdlOutcome
from cdc_pipeline.mirrors.model.upstream_tables import existing_tables, qualified_events
from cdc_pipeline.mirrors.planning.included_ddl import IncludedDdl, UpstreamDefinitions, exclusion_reason
from cdc_pipeline.mirrors.planning.selection_change import SelectionChange
from cdc_pipeline.mysql.model.change_names import created_names, with_keys
from cdc_pipeline.mysql.model.table import TableName

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from cdc_pipeline.mirrors.changes.progress import PublishedCut
    from cdc_pipeline.mirrors.changes.window import Window
    from cdc_pipeline.mirrors.cuts.cut_ddl import CutStatements
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
    from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
    from cdc_pipeline.mirrors.settings.selection import TableSelection
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
    time_zone: str

    # ---- rows

    @cached_property
    def log(self) -> DataFrame:
        """The change log by the names of mirrors, without excluded tables."""
        return self.selection.selected(self.full_log)

    # ---- DDL

    def route_event(self, event: DdlEvent) -> DdlEvent:
        """An event of an earlier cut by the keys of mirrors. Its definitions are not resolved."""
        return IncludedDdl(self.selection).mirrored_event(event)

    def route_statements(self, ddl: CutStatements) -> CutStatements:
        """The statements by what they do to mirrors."""
        ddl = replace(ddl, to_apply=tuple(qualified_events(ddl.to_apply, self._tables, self.selection.key)))
        ddl = ddl.routed(IncludedDdl(self.selection, self._definitions))
        if self.selection_change is not None:
            ddl = replace(ddl, decided={**self._no_longer_held(), **ddl.decided})
        return ddl

    def _no_longer_held(self) -> dict[Position, DdlOutcome]:
        """Outcomes of held statements that concern only tables that are no longer included."""
        held = in_upstream_order(map(ddl_event, self.history.where(F.col("status") == HELD).collect()))
        return {
            event.position: DdlOutcome(NOT_INCLUDED, [exclusion_reason(event)])
            for event in held
            if event.database and not self.route_event(event).changes
        }

    def _tables(self) -> set[TableName]:
        """Upstream's tables before the cut or with rows in it, by key."""
        names = [table for state in self._mirrors for table in state.upstream_tables]
        rows = self.window.rows_in(self.full_log).select("database", "table").distinct().collect()
        found = {self.selection.key(name) for name in (*names, *(TableName(*row) for row in rows))}
        return found if self.selection.is_identity else found | self._existing.keys()

    @property
    def _mirrors(self) -> list[MirrorState]:
        """The mirrors of the last cut, without those of dropped tables, which `ddl_policy` keeps."""
        states = (self.lookup(name) for name in self.published.names)
        return [state for state in states if state is not None and not state.retired]

    @cached_property
    def _past(self) -> list[DdlEvent]:
        """The statements of earlier cuts, without duplicates, by key."""
        past = self.history.where((F.col("cut_id") < self.window.cut_id) & (F.col("status") != DUPLICATE))
        key, rows = self.selection.key, lambda: map(self.selection.key, self._rows_before)
        return [
            replace(
                event,
                changes=tuple(with_keys(change, key) for change in event.changes),
                created=tuple((key(name), name) for name in created_names(event.changes)),
            )
            for event in qualified_events(in_upstream_order(map(ddl_event, past.collect())), rows, key)
        ]

    @cached_property
    def _rows_before(self) -> dict[TableName, int]:
        """The tables with rows before the cut, each with the `commit_ts` of its last one."""
        rows = self.window.rows_before(self.full_log).groupBy("database", "table").agg(F.max("commit_ts")).collect()
        return {TableName(*row[:2]): row[2] for row in rows}

    @cached_property
    def _definitions(self) -> UpstreamDefinitions:
        return UpstreamDefinitions(lambda: self._past, self.time_zone, self.selection)

    @cached_property
    def _existing(self) -> dict[TableName, TableName]:
        """Upstream's tables before this cut, excluded ones too: key → name."""
        spelled, last = dict(pair for event in self._past for pair in event.created), dict[TableName, int]()
        for name, time in sorted(self._rows_before.items(), reverse=True):
            key = self.selection.key(name)
            spelled[key] = name
            last[key] = max(time, last.get(key, time))
        return {key: spelled.get(key, key) for key in existing_tables(last, self._past)}

    # ---- a changed selection

    @cached_property
    def selection_change(self) -> SelectionChange | None:
        """What the cut does because the selection has changed; None if it is the same."""
        if not self.published.cut_id or self.published.selection == self.selection:
            return None
        live = {state.name: state.upstream_tables for state in self._mirrors}
        existing = self._existing.values()
        return SelectionChange.from_selections(live, existing, self.published.selection, self.selection)

    def held(self) -> tuple[HeldTable, ...]:
        """The tables that earlier cuts left held, by their current keys."""
        change = self.selection_change
        return self._held_before if change is None else change.still_held(self._held_before)

    @property
    def _held_before(self) -> tuple[HeldTable, ...]:
        return tuple(replace(table, name=self.selection.key(table.name)) for table in self.published.held)

    def plan_selection_change(self, draft: PlanDraft) -> tuple[str, ...]:
        """Adds the steps of a changed selection to the empty draft. Returns one sentence for each of its effects."""
        if self.selection_change is None:
            return ()
        # new: `_definitions` has applied this cut's statements already
        before = UpstreamDefinitions(lambda: self._past, self.time_zone, self.selection)
        self.selection_change.plan(draft, self.window.cut_id, self.selection, before.definition)
        return self.selection_change.descriptions(self.selection)
