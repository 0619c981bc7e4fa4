"""Dropped and truncated mirrors, whose rows RECOVER TABLE and FLASHBACK TABLE restore."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

from pyspark.sql import functions as F

from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.paths import subfolders
from cdc_pipeline.lake.restored_tables import require_not_restored
from cdc_pipeline.mirrors.model.ddl_events import ddl_event, in_upstream_order
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.schema_changes import TruncateTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mysql.model.table import TableName


@dataclass(frozen=True)
class DroppedTable:
    """A mirror that a statement dropped or truncated."""

    state: MirrorState
    """The mirror's state, with its name, before the statement."""
    ddl_id: str
    """The id of the statement (`DdlEvent.ddl_id`)."""
    how: Literal["dropped", "retired", "truncated"]
    """`dropped`: its folder was moved to `dropped/`.
    `retired`: it was renamed (`ddl_policy: keep`).
    `truncated`: its rows are in an earlier version of the mirror."""

    @property
    def name(self) -> TableName:
        return self.state.former_name

    @property
    def time(self) -> int:
        """The `commit_ts` of the statement."""
        return int(self.ddl_id.split(".")[0])


def dropped_tables(
    lake: Lake,
    history: DataFrame,
    database: str,
    before_cut: int,
    mirrored: Callable[[DdlEvent], DdlEvent],
    names: Mapping[TableName, TableName],
) -> tuple[DroppedTable, ...]:
    """The mirrors of a database, in any case, that earlier cuts dropped or truncated. `mirrored`: event → its effect on
    mirrors. `names`: key → name of those that exist."""
    dropped, retired = _dropped(lake, database), _retired(lake, database)
    return (*dropped, *retired, *_truncated(lake, history, database, before_cut, mirrored, names))


def _table_folders(lake: Lake, kind: str, database: str) -> list[str]:
    databases = subfolders(lake.spark, f"{lake.paths.home}/{kind}")
    same = [path for path in databases if unquote(path.rsplit("/", 1)[1]).lower() == database.lower()]
    return [folder for path in same for folder in subfolders(lake.spark, path)]


def _retired(lake: Lake, database: str) -> list[DroppedTable]:
    folders = _table_folders(lake, "mirror", database)
    tables = filter(None, (table_state(lake.spark, path) for path in folders))
    states = [MirrorState.from_properties(table.properties) for table in tables]
    return [DroppedTable(state, state.retired, "retired") for state in states if state.retired is not None]


def _dropped(lake: Lake, database: str) -> list[DroppedTable]:
    found = []
    for path in _table_folders(lake, "dropped", database):
        require_not_restored(lake, path)
        table = table_state(lake.spark, path)
        mark = path.rsplit("@", 1)[-1]
        if table is not None and mark.split(".")[0].isdigit():
            found.append(DroppedTable(MirrorState.from_properties(table.properties), mark, "dropped"))
    return found


def _truncated(
    lake: Lake,
    history: DataFrame,
    database: str,
    before_cut: int,
    mirrored: Callable[[DdlEvent], DdlEvent],
    names: Mapping[TableName, TableName],
) -> list[DroppedTable]:
    # `ddl_history` lists the TRUNCATE statements; the rows are in the mirror's own Delta log
    past = history.where((F.col("cut_id") < before_cut) & F.col("sql").rlike("(?i)truncate"))
    found = []
    for event in in_upstream_order(map(mirrored, map(ddl_event, past.collect()))):
        for change in event.changes:
            if not isinstance(change, TruncateTable) or change.name.database.lower() != database.lower():
                continue
            table = table_state(lake.spark, lake.paths.mirror(names.get(change.name, change.name)))
            if table is not None:
                found.append(DroppedTable(MirrorState.from_properties(table.properties), event.ddl_id, "truncated"))
    return found


@dataclass(frozen=True)
class TruncatedVersion:
    """A mirror before a TRUNCATE."""

    version: int
    """Its Delta version."""
    masks: dict[str, str]
    """Column → mask."""
    mask_key: str
    """The key of the mask salt."""
    keeps_deleted: bool
    """Whether it used `soft_delete`."""


def truncated_version(spark: SparkSession, path: str, mark: str) -> TruncatedVersion | None:
    """The mirror at `path` before the TRUNCATE `mark`; None if its Delta history no longer has that commit."""
    history = spark.sql(f"DESCRIBE HISTORY delta.{quoted(path)}")
    for row in history.where(F.col("userMetadata").contains("truncated")).select("version", "userMetadata").collect():
        note = json.loads(row["userMetadata"])
        if note.get("truncated") == mark:
            before = int(row["version"]) - 1
            return TruncatedVersion(before, dict(note["masks"]), note["mask_key"], note["keeps_deleted"])
    return None
