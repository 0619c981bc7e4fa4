"""The mirrors, dropped tables and approvals that a plan is made from, each read once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.restored_tables import require_not_restored
from cdc_pipeline.mirrors.changes.dropped_tables import DroppedTable, dropped_tables
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.planning.included_ddl import IncludedDdl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.mirrors.changes.window import Window
    from cdc_pipeline.mirrors.settings.selection import TableSelection
    from cdc_pipeline.mysql.model.table import TableName
    from cdc_pipeline.positions import Position


@dataclass(frozen=True)
class StoredMirrors:
    """Reads the lake's mirrors as they are now."""

    lake: Lake
    history: DataFrame
    selection: TableSelection
    names: Mapping[TableName, TableName]
    """Key → name of the mirrors of the last cut."""

    def mirror(self, key: TableName) -> MirrorState | None:
        """None if there is no mirror of this key. Raises RestoredTableError if the mirror was restored (RESTORE)."""
        path = self.lake.paths.mirror(self.names.get(key, key))
        require_not_restored(self.lake, path)
        table = table_state(self.lake.spark, path)
        return None if table is None else MirrorState.from_properties(table.properties)

    def dropped_tables(self, database: str, cut_id: int) -> tuple[DroppedTable, ...]:
        route_event = IncludedDdl(self.selection).mirrored_event
        return dropped_tables(self.lake, self.history, database, cut_id, route_event, self.names)


@dataclass
class CutInputs:
    """Caches what it reads, so that a plan sees each mirror in one state."""

    stored: StoredMirrors
    approved: frozenset[Position]
    mirrors: dict[TableName, MirrorState | None] = field(default_factory=dict)
    ended_by_database: dict[str, tuple[DroppedTable, ...]] = field(default_factory=dict)

    def mirror(self, name: TableName) -> MirrorState | None:
        """The mirror of this key or name after the last cut; None if there was none."""
        key = self.stored.selection.key(name)
        if key not in self.mirrors:
            self.mirrors[key] = self.stored.mirror(key)
        return self.mirrors[key]

    def dropped_tables(self, database: str, window: Window) -> tuple[DroppedTable, ...]:
        """The tables of the database that earlier cuts have dropped or truncated."""
        if database not in self.ended_by_database:
            self.ended_by_database[database] = self.stored.dropped_tables(database, window.cut_id)
        return self.ended_by_database[database]
