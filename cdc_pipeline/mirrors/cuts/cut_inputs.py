"""The mirrors, ended tables and approvals that a plan is made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.restored_tables import require_not_restored
from cdc_pipeline.mirrors.changes.dropped_tables import EndedTable, ended_tables
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.planning.included_ddl import mirrored_event

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.mirrors.settings.selection import TableSelection
    from cdc_pipeline.mysql.model.table import TableName
    from cdc_pipeline.positions import Position


@dataclass
class CutInputs:
    """Reads each mirror once, so that a plan sees it in one state."""

    lake: Lake
    selection: TableSelection
    permitted: frozenset[Position]
    """Statements that no policy holds."""
    names: Mapping[TableName, TableName]
    """Key → name of the mirrors of the last cut."""
    mirrors: dict[TableName, MirrorState | None] = field(default_factory=dict)

    def mirror(self, name: TableName) -> MirrorState | None:
        """The mirror of this key or name after the last cut; None if there was none. Raises RestoredTableError if it was
        restored (RESTORE)."""
        key = self.selection.key(name)
        if key not in self.mirrors:
            path = self.lake.paths.mirror(self.names.get(key, key))
            require_not_restored(self.lake, path)
            table = table_state(self.lake.spark, path)
            self.mirrors[key] = None if table is None else MirrorState.from_properties(table.properties)
        return self.mirrors[key]

    def ended_tables(self, database: str, cut_id: int) -> Iterable[EndedTable]:
        """The tables of the database that cuts before this one have dropped or truncated."""
        return ended_tables(self.lake, database, cut_id, partial(mirrored_event, selection=self.selection))
