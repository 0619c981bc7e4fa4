"""The decoded tables as one cut sees them, through the pipeline's selection: the only place where upstream's names become
those of mirrors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.lake.tables.ddl_history import DUPLICATE, HELD, NOT_INCLUDED
from cdc_pipeline.mirrors.model.ddl_events import ddl_event, in_order
from cdc_pipeline.mirrors.model.ddl_outcome import DdlOutcome
from cdc_pipeline.mirrors.model.shards import SOURCE_NAMES
from cdc_pipeline.mirrors.model.upstream_tables import existing_tables, last_rows
from cdc_pipeline.mirrors.planning.included_ddl import IncludedDdl, left_out_words
from cdc_pipeline.mirrors.planning.merged_definitions import taken_names
from cdc_pipeline.mirrors.planning.selection_change import SelectionChange
from cdc_pipeline.mirrors.planning.upstream_definitions import UpstreamDefinitions
from cdc_pipeline.mirrors.settings.selection import sources_with
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from cdc_pipeline.mirrors.changes.progress import PublishedCut
    from cdc_pipeline.mirrors.changes.window import Window
    from cdc_pipeline.mirrors.cuts.cut_ddl import DdlOfCut
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
    from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
    from cdc_pipeline.mirrors.settings.selection import Sources, TableSelection


@dataclass(frozen=True)
class CutStreams:
    """`whole_log` and `history` are the tables as they are; `lookup` gives a mirror as the last cut left it."""

    selection: TableSelection
    published: PublishedCut
    window: Window
    whole_log: DataFrame
    history: DataFrame
    lookup: Callable[[TableName], MirrorState | None]
    time_zone: str

    # ---- rows

    @cached_property
    def log(self) -> DataFrame:
        """`change_log` by the names of mirrors."""
        return self.selection.selected(self.whole_log)

    def pending(self) -> int:
        """The row changes that wait for a later cut: only that will tell whether their tables are in."""
        return self.window.pending(self.whole_log).count()

    def filtered(self) -> int:
        """The row changes that this cut passes and leaves out, late ones among them, but for those of `held_left_out`."""
        if self.selection.all_in:
            return 0
        log = self.selection.left_out(self.whole_log)
        passed = self.window.changes(log, waited=self.published.pending > 0, again={})
        return passed.where("fresh").count() + self.window.late(log).count()

    @property
    def held_left_out(self) -> int:
        """The row changes that waited with tables that are not included any more."""
        return 0 if self.change is None else self.change.held_rows_left_out(self.published.held)

    # ---- DDL

    def mirrored(self, event: DdlEvent) -> DdlEvent:
        """What an event of an earlier cut did to mirrors: their names are all that is asked for."""
        return IncludedDdl(self.selection, self._known_sources).event(event)

    def statements(self, ddl: DdlOfCut) -> tuple[DdlOfCut, Sources]:
        """The events by what they do to mirrors, and upstream's tables by mirror where those have names of their own.

        Raises DeclarationError where two tables would have one mirror.
        """
        if any(not event.database for event in ddl.fresh):
            ddl = ddl.with_databases(self._upstream_names())
        included = IncludedDdl(self.selection, self._known_sources, self._definitions)
        if self.selection.routes:
            included = replace(
                included, sources=self._sources([name for event in ddl.fresh for name in included.appearing(event)])
            )
        ddl = ddl.mirrored(included)
        if self.change is not None:
            ddl = replace(ddl, settled={**self._no_longer_held(), **ddl.settled})
        return ddl, included.sources

    def _no_longer_held(self) -> dict[tuple[str, int, int], DdlOutcome]:
        """Statements that waited and concern only tables that are not included any more."""
        waiting = in_order(map(ddl_event, self.history.where(F.col("status") == HELD).collect()))
        return {
            event.position: DdlOutcome(NOT_INCLUDED, [left_out_words(event)])
            for event in waiting
            if event.database and not self.mirrored(event).changes
        }

    def _upstream_names(self) -> set[TableName]:
        """The tables that statements without a database may mean."""
        rows = last_rows(self.window.of(self.whole_log))
        if self.selection.everything:
            return {*self.published.names, *rows}
        return {*self._existing, *rows}

    @cached_property
    def _past(self) -> list[DdlEvent]:
        """The statements of earlier cuts, each once."""
        past = self.history.where((F.col("cut_id") < self.window.cut_id) & (F.col("status") != DUPLICATE))
        return in_order(map(ddl_event, past.collect()))

    @cached_property
    def _definitions(self) -> UpstreamDefinitions:
        return UpstreamDefinitions(lambda: self._past, self.time_zone)

    @cached_property
    def _existing(self) -> set[TableName]:
        """Upstream's tables before this cut, whether they were included or not."""
        return existing_tables(last_rows(self.window.before(self.whole_log)), self._past)

    # ---- another selection than before

    @cached_property
    def change(self) -> SelectionChange | None:
        """What the cut does because the selection is another one; None where it is as it was."""
        if not self.published.cut_id or self.published.selection == self.selection:
            return None
        mirrors = {name: self.published.upstream(name) for name in self.published.names}
        states = {name: self.lookup(name) for name in mirrors}
        # what a policy keeps of a dropped table stays
        live = {name: tables for name, tables in mirrors.items() if (state := states[name]) and not state.retired}
        return SelectionChange.between(live, self._existing, self.published.selection, self.selection)

    def held(self) -> tuple[HeldTable, ...]:
        """The tables that wait from earlier cuts, by their names now."""
        return self.published.held if self.change is None else self.change.held(self.published.held)

    def plan_change(self, book: PlanDraft) -> tuple[str, ...]:
        """Adds the steps of another selection to the empty book. Line by line what they do."""
        if self.change is None:
            return ()
        # as they were before this cut: those of `_definitions` have followed its statements
        before = UpstreamDefinitions(lambda: self._past, self.time_zone)
        self.change.plan(book, self.window.cut_id, self.selection, before.of)
        return self.change.words(self.selection)

    # ---- which table a mirror is of

    @cached_property
    def _known_sources(self) -> Sources:
        if not self.selection.routes:
            return {}
        if self.change is None:
            return self.published.sources
        upstream = [source for name in self.published.names for source in self.published.upstream(name)]
        return sources_with({}, [*upstream, *self.change.starting], self.selection)

    def _sources(self, appearing: list[TableName]) -> Sources:
        new = self.whole_log.where(F.col("batch_id") <= self.window.last_batch)
        if self.change is None:
            new = new.where(F.col("batch_id") > self.window.after_batch)
        names = new.select("database", "table").distinct().collect()
        rows = [TableName(row["database"], row["table"]) for row in names]
        known = {source for sources in self._known_sources.values() for source in sources}
        self.check_names(new, [name for name in rows if name not in known and self.selection.merges(name)])
        return sources_with(self._known_sources, [*rows, *appearing], self.selection)

    @staticmethod
    def check_names(changes: DataFrame, names: list[TableName]) -> None:
        """Raises DeclarationError where rows of one of these tables, which are to be merged, have a column that has the name
        of one that merging adds."""
        if not names:
            return
        small = small_frame(
            changes.sparkSession, [(name.database, name.table) for name in names], "`database` STRING, `table` STRING"
        )
        taken = F.exists(
            F.map_keys(F.coalesce("after", "before")), lambda column: F.lower(column).isin(list(SOURCE_NAMES))
        )
        found = changes.join(F.broadcast(small), ["database", "table"]).where(taken).select("database", "table").first()
        if found is not None:
            raise taken_names(TableName(found["database"], found["table"]))
