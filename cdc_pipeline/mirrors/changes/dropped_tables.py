"""The tables that earlier cuts have dropped or truncated, for RECOVER TABLE and FLASHBACK TABLE."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from pyspark.sql import functions as F

from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import mirror_folders, subfolders
from cdc_pipeline.lake.restored_tables import require_not_restored
from cdc_pipeline.mirrors.changes.progress import PublishedCut
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent, ddl_event
from cdc_pipeline.mirrors.model.state import DROPPED_BY, MirrorState
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
    lake: Lake, database: str, published: PublishedCut, before_cut: int, mirrored: Callable[[DdlEvent], DdlEvent]
) -> Iterator[EndedTable]:
    """The tables of a database, in any case, that earlier cuts dropped or truncated. `mirrored`: event → its effect on
    mirrors.

    Raises RestoredTableError if the mirror of one was restored (RESTORE).
    """
    for path in _mirror_folders(lake, database):
        if (table := table_state(lake.spark, path)) is None:
            continue
        state = MirrorState.from_properties(table.properties)
        mark = state.retired or ""
        if path.startswith(f"{lake.paths.home}/dropped/"):
            mark = path.rsplit("@", 1)[-1]
        elif state.mirror_id not in published.ids.values():  # else a cut that a rebuild abandoned has marked it
            mark = table.properties.get(DROPPED_BY) or mark
        if mark.split(".")[0].isdigit() and state.name.database.lower() == database.lower():
            require_not_restored(lake, path)
            yield EndedTable(state.former_name, mark, state)
    past = lake.read("ddl_history").where((F.col("cut_id") < before_cut) & F.col("sql").rlike("(?i)truncate"))
    for event in map(mirrored, map(ddl_event, past.collect())):
        for change in event.changes:
            if isinstance(change, TruncateTable) and change.name.database.lower() == database.lower():
                yield EndedTable(change.name, event.ddl_id, None)


def _mirror_folders(lake: Lake, database: str) -> list[str]:
    """The folders of dropped and of present mirrors. In a local lake only those of the database."""
    if not lake.paths.is_local:
        return mirror_folders(lake.spark, lake.paths)
    databases = (path for kind in ("dropped", "mirror") for path in subfolders(lake.spark, f"{lake.paths.home}/{kind}"))
    same = [path for path in databases if unquote(path.rsplit("/", 1)[1]).lower() == database.lower()]
    return [folder for path in same for folder in subfolders(lake.spark, path)]
