"""Upstream's table names in one cut: what its statements mean, and which mirrors take the name of their rows.

Reads the rows only if a name of a statement or a mirror has capital letters, or is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from cdc_pipeline.dialects.traits import Trait, dialect_has_trait
from cdc_pipeline.mirrors.changes.row_filters import is_in_table
from cdc_pipeline.mirrors.model.object_names import ObjectNames, moved_names
from cdc_pipeline.mirrors.model.source_tables import with_renamed_source_table
from cdc_pipeline.mirrors.model.upstream_tables import RowTimes, row_times
from cdc_pipeline.mysql.model.change_names import folded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame

    from cdc_pipeline.mirrors.changes.row_groups import RowGroup
    from cdc_pipeline.mirrors.changes.window import Window
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
    from cdc_pipeline.mirrors.settings.selection import Sources, TableSelection
    from cdc_pipeline.mysql.model.table import TableName


@dataclass
class CutNames:
    """The names of one cut."""

    window: Window
    log: DataFrame
    """`change_log`, by upstream's names."""
    selection: TableSelection
    known: set[TableName]
    """Upstream's tables before the cut."""
    lookup: Callable[[TableName], MirrorState | None]
    """Returns a mirror as the last cut left it."""
    held: frozenset[TableName] = frozenset()
    """Upstream's tables whose mirrors are held, so that they keep their names."""
    moves: bool = True
    """Whether mirrors may take the name of their rows. False if the cut changes the selection."""
    moved: dict[TableName, TableName] | None = field(default=None, init=False)
    """The tables whose first rows come under another case (`moved_names`). None: not yet known."""

    @cached_property
    def rows(self) -> dict[TableName, RowTimes]:
        """The tables with rows in the cut."""
        return row_times(self.window.rows_in(self.log))

    def resolved(self, events: Iterable[DdlEvent]) -> list[DdlEvent]:
        """The statements of the cut, in order, with the names of the tables that they mean."""
        found = list(events)
        if not found and not self.selection.routes:
            return []
        if found and all(dialect_has_trait(event.dialect, Trait.FROM_TIDB) for event in found):
            self.moved = {}  # its rows have the names of the definitions
        else:
            self.moved = self._moves(found)
        return self._names().resolved(found)

    def looked_up(self, event: DdlEvent) -> DdlEvent:
        """A statement of an earlier cut, or a late one, with the present names of its tables."""
        return self._names().looked_up(event)

    def _names(self) -> ObjectNames:
        moved = self.moved or {}
        return ObjectNames({moved.get(name, name) for name in self.known}, lambda: self.rows)

    # ---- mirrors that take the name of their rows

    def _moves(self, events: Iterable[DdlEvent]) -> dict[TableName, TableName]:
        if not self.moves or all(folded(name) == name for name in self.known):
            return {}
        return moved_names(self.known, self.rows, events, lambda name: name in self.held or self._has_rows(name))

    def _has_rows(self, name: TableName) -> bool:
        rows = self.log.where(is_in_table(name)).where(f"batch_id <= {self.window.last_batch}")
        return not rows.limit(1).isEmpty()

    def plan_moves(self, draft: PlanDraft, groups: Iterable[RowGroup]) -> None:
        """Adds the steps for `moved` to the empty draft."""
        if self.moved is None:
            is_new = any(draft.state(group.name) is None or group.source is not None for group in groups)
            self.moved = self._moves(()) if is_new else {}
        for old, new in self.moved.items():
            if not self.selection.includes(new) or self.selection.merges(old) != self.selection.merges(new):
                continue
            mirror, target = self.selection.mirror_name(old), self.selection.mirror_name(new)
            if (state := draft.state(mirror)) is None:
                continue
            if state.source_tables is not None:
                sources = with_renamed_source_table(state.source_tables, old, new)
                draft.record_state(replace(state, source_tables=sources))
            elif draft.state(target) is None:
                draft.apply_name_rules(draft.rename(state, target))

    def with_moved(self, sources: Sources) -> Sources:
        """The upstream tables of mirrors (`published.sources`) under their present names."""
        moved = self.moved or {}
        found = {mirror: tuple(sorted(moved.get(name, name) for name in tables)) for mirror, tables in sources.items()}
        renamed = {self.selection.mirror_name(old): self.selection.mirror_name(new) for old, new in moved.items()}
        return {renamed.get(mirror, mirror): tables for mirror, tables in found.items()}
