"""The tables that earlier cuts have dropped or truncated, for RECOVER TABLE and FLASHBACK TABLE."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from pyspark.sql import functions as F

from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import subfolders
from cdc_pipeline.lake.restored_tables import require_not_restored
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent, ddl_event
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mysql.model.schema_changes import TruncateTable
from cdc_pipeline.mysql.model.table import TableName


@dataclass(frozen=True)
class EndedTable:
    """A table that a statement dropped or truncated."""

    name: TableName
    ddl_id: str
    """The id of the statement (`DdlEvent.ddl_id`)."""
    state: MirrorState | None
    """That of the dropped mirror, which the lake keeps in `dropped/` or under another name (`ddl_policy: keep`). None if the
    table was truncated."""

    @property
    def time(self) -> int:
        """The `commit_ts` of the statement."""
        return int(self.ddl_id.split(".")[0])


def ended_tables(
    lake: Lake, database: str, before_cut: int, mirrored: Callable[[DdlEvent], DdlEvent]
) -> Iterator[EndedTable]:
    """The tables of a database, in any case, that earlier cuts dropped or truncated. `mirrored`: event → its effect on
    mirrors.

    Raises RestoredTableError if the mirror of one was restored (RESTORE).
    """
    for kind in ("dropped", "mirror"):
        for path in _table_folders(lake, kind, database):
            if (table := table_state(lake.spark, path)) is None:
                continue
            state = MirrorState.from_properties(table.properties)
            mark = path.rsplit("@", 1)[-1] if kind == "dropped" else state.retired or ""
            if mark.split(".")[0].isdigit():
                require_not_restored(lake, path)
                yield EndedTable(state.former_name, mark, state)
    past = lake.read("ddl_history").where((F.col("cut_id") < before_cut) & F.col("sql").rlike("(?i)truncate"))
    for event in map(mirrored, map(ddl_event, past.collect())):
        for change in event.changes:
            if isinstance(change, TruncateTable) and change.name.database.lower() == database.lower():
                yield EndedTable(change.name, event.ddl_id, None)


def _table_folders(lake: Lake, kind: str, database: str) -> list[str]:
    databases = subfolders(lake.spark, f"{lake.paths.home}/{kind}")
    same = [path for path in databases if unquote(path.rsplit("/", 1)[1]).lower() == database.lower()]
    return [folder for path in same for folder in subfolders(lake.spark, path)]
