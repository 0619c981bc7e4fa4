"""The decoded tables as one cut reads them, through the pipeline's selection: upstream's names become those of mirrors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.lake.tables.ddl_history import DUPLICATE, HELD, NOT_INCLUDED
from cdc_pipeline.mirrors.cuts.cut_names import CutNames
from cdc_pipeline.mirrors.model.ddl_events import ddl_event, in_upstream_order
from cdc_pipeline.mirrors.model.ddl_outcome import DdlOutcome
from cdc_pipeline.mirrors.model.object_names import ObjectNames
from cdc_pipeline.mirrors.model.source_tables import SOURCE_NAMES
from cdc_pipeline.mirrors.model.upstream_tables import RowTimes, existing_tables, row_times
from cdc_pipeline.mirrors.planning.included_ddl import IncludedDdl, exclusion_reason
from cdc_pipeline.mirrors.planning.merged_definitions import reserved_column_error
from cdc_pipeline.mirrors.planning.selection_change import SelectionChange
from cdc_pipeline.mirrors.planning.upstream_definitions import UpstreamDefinitions
from cdc_pipeline.mirrors.settings.selection import sources_with
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame

    from cdc_pipeline.mirrors.changes.progress import PublishedCut
    from cdc_pipeline.mirrors.changes.row_groups import RowGroup
    from cdc_pipeline.mirrors.changes.window import Window
    from cdc_pipeline.mirrors.cuts.cut_ddl import CutStatements
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
    from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
    from cdc_pipeline.mirrors.settings.selection import Sources, TableSelection
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
        """An event of an earlier cut by the names of mirrors. Its definitions are not resolved."""
        return IncludedDdl(self.selection, self._known_sources).mirrored_event(self.names.looked_up(event))

    def route_statements(self, ddl: CutStatements) -> tuple[CutStatements, Sources]:
        """The statements by what they do to mirrors, and the upstream tables of mirrors whose names differ from theirs.

        Raises DeclarationError if two tables would have one mirror.
        """
        if not self.selection.is_identity and any(not event.database for event in ddl.to_apply):
            self.names.known |= self._existing
        ddl = ddl.named(self.names)
        included = IncludedDdl(self.selection, self.names.with_moved(self._known_sources), self._definitions)
        if self.selection.routes:
            included = replace(
                included,
                sources=self._sources([name for event in ddl.to_apply for name in included.created_tables(event)]),
            )
        ddl = ddl.routed(included)
        if self.selection_change is not None:
            ddl = replace(ddl, decided={**self._no_longer_held(), **ddl.decided})
        return ddl, included.sources

    def _no_longer_held(self) -> dict[Position, DdlOutcome]:
        """Outcomes of held statements that concern only tables that are no longer included."""
        held = in_upstream_order(map(ddl_event, self.history.where(F.col("status") == HELD).collect()))
        return {
            event.position: DdlOutcome(NOT_INCLUDED, [exclusion_reason(event)])
            for event in held
            if event.database and not self.route_event(event).changes
        }

    @cached_property
    def names(self) -> CutNames:
        known = {source for name in self.published.names for source in self._tables_of(name)}
        held = frozenset(source for table in self.published.held for source in self._tables_of(table.name))
        moves = self.selection_change is None
        return CutNames(self.window, self.full_log, self.selection, known, self.lookup, held, moves=moves)

    def _tables_of(self, mirror: TableName) -> Iterable[TableName]:
        """The tables that the mirror has now; of a merged mirror `published` lists former ones too."""
        found = self.published.upstream(mirror)
        state = self.lookup(mirror) if len(found) > 1 else None
        return found if state is None else [source.name for source in state.source_tables or ()]

    @cached_property
    def _past(self) -> list[DdlEvent]:
        """The statements of earlier cuts, without duplicates, with the names of the tables that they meant."""
        past = self.history.where((F.col("cut_id") < self.window.cut_id) & (F.col("status") != DUPLICATE))
        names = ObjectNames(set(), lambda: self._rows_before)
        return names.resolved(in_upstream_order(map(ddl_event, past.collect())))

    @cached_property
    def _rows_before(self) -> dict[TableName, RowTimes]:
        return row_times(self.window.rows_before(self.full_log))

    @cached_property
    def _definitions(self) -> UpstreamDefinitions:
        return UpstreamDefinitions(lambda: self._past, self.time_zone)

    @cached_property
    def _existing(self) -> set[TableName]:
        """Upstream's tables before this cut, excluded ones too."""
        return existing_tables({name: times.last for name, times in self._rows_before.items()}, self._past)

    # ---- a changed selection

    @cached_property
    def selection_change(self) -> SelectionChange | None:
        """What the cut does because the selection has changed; None if it is the same."""
        if not self.published.cut_id or self.published.selection == self.selection:
            return None
        mirrors = {name: self.published.upstream(name) for name in self.published.names}
        states = {name: self.lookup(name) for name in mirrors}
        # without the mirrors of dropped tables, which `ddl_policy` keeps
        live = {name: tables for name, tables in mirrors.items() if (state := states[name]) and not state.retired}
        return SelectionChange.from_selections(live, self._existing, self.published.selection, self.selection)

    def held(self) -> tuple[HeldTable, ...]:
        """The tables that earlier cuts left held, by their current names."""
        change = self.selection_change
        return self.published.held if change is None else change.still_held(self.published.held)

    def plan_names(self, draft: PlanDraft, groups: Iterable[RowGroup]) -> tuple[str, ...]:
        """Adds the steps of mirrors that change their names, or of a changed selection, to the empty draft.

        Returns one sentence for each effect of a changed selection.
        """
        self.names.plan_moves(draft, groups)
        if self.selection_change is None:
            return ()
        # new: `_definitions` has applied this cut's statements already
        before = UpstreamDefinitions(lambda: self._past, self.time_zone)
        self.selection_change.plan(draft, self.window.cut_id, self.selection, before.definition)
        return self.selection_change.descriptions(self.selection)

    # ---- the upstream tables of mirrors

    @cached_property
    def _known_sources(self) -> Sources:
        if not self.selection.routes:
            return {}
        if self.selection_change is None:
            return self.published.sources
        upstream = [source for name in self.published.names for source in self.published.upstream(name)]
        return sources_with({}, [*upstream, *self.selection_change.created], self.selection)

    def _sources(self, created: list[TableName]) -> Sources:
        new = self.full_log.where(F.col("batch_id") <= self.window.last_batch)
        if self.selection_change is None:
            new = new.where(F.col("batch_id") > self.window.after_batch)
        names = new.select("database", "table").distinct().collect()
        rows = [TableName(row["database"], row["table"]) for row in names]
        known_sources = self.names.with_moved(self._known_sources)
        known = {source for sources in known_sources.values() for source in sources}
        self.require_free_names(new, [name for name in rows if name not in known and self.selection.merges(name)])
        return sources_with(known_sources, [*rows, *created], self.selection)

    @staticmethod
    def require_free_names(changes: DataFrame, names: list[TableName]) -> None:
        """Raises DeclarationError if rows of one of these tables, which the selection merges, have a column named like those
        that `merge` adds."""
        if not names:
            return
        small = small_frame(
            changes.sparkSession, [(name.database, name.table) for name in names], "`database` STRING, `table` STRING"
        )
        taken = F.exists(
            F.map_keys(F.coalesce("after", "before")), lambda column: F.lower(column).isin(list(SOURCE_NAMES))
        )
        row = changes.join(F.broadcast(small), ["database", "table"]).where(taken).select("database", "table").first()
        if row is not None:
            raise reserved_column_error(TableName(row["database"], row["table"]))
