"""The tables that exist upstream, by upstream's names, as far as statements and rows show."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from cdc_pipeline.mysql.model.schema_changes import DropDatabase
from cdc_pipeline.mysql.model.table import TableName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame

    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mysql.model.schema_changes import SchemaChange


class RowTimes(NamedTuple):
    """The `commit_ts` of the first and the last row change of a table."""

    first: int
    last: int


def row_times(log: DataFrame) -> dict[TableName, RowTimes]:
    """The tables with row changes."""
    ends = F.min("commit_ts").alias("first"), F.max("commit_ts").alias("last")
    rows = log.groupBy("database", "table").agg(*ends).collect()
    return {TableName(row["database"], row["table"]): RowTimes(row["first"], row["last"]) for row in rows}


def existing_tables(rows: Mapping[TableName, int], past: Iterable[DdlEvent]) -> set[TableName]:
    """The tables that exist after the statements `past` (in order), or have rows since they were last dropped.

    `rows`: the `commit_ts` of each table's last row.
    """
    existing: set[TableName] = set()
    dropped_at: dict[TableName, int] = {}
    for event in past:
        for change in event.changes:
            dropped = _dropped_names(change, existing | rows.keys())
            existing.difference_update(dropped)
            dropped_at.update(dict.fromkeys(dropped, event.commit_ts))
            existing.update((*change.names().added, *change.names().recovered))
    return existing | {name for name, last in rows.items() if last > dropped_at.get(name, -1)}


def _dropped_names(change: SchemaChange, known: Iterable[TableName]) -> list[TableName]:
    if isinstance(change, DropDatabase):
        return [name for name in known if name.database == change.database]
    return list(change.names().removed)
