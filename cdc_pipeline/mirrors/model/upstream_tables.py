"""Which tables upstream has, and which of them each mirror is of: both by upstream's own names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.mirrors.model.ddl_events import begun_names, ended_names
from cdc_pipeline.mysql.model.schema_changes import (
    DropDatabase,
)
from cdc_pipeline.mysql.model.table import TableName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame

    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mysql.model.schema_changes import SchemaChange


def last_rows(log: DataFrame) -> dict[TableName, int]:
    """The tables that have row changes here, each with the greatest `commit_ts`."""
    rows = log.groupBy("database", "table").agg(F.max("commit_ts").alias("last")).collect()
    return {TableName(row["database"], row["table"]): row["last"] for row in rows}


def existing_tables(rows: Mapping[TableName, int], past: Iterable[DdlEvent]) -> set[TableName]:
    """The tables that were there after all these statements, in order, and rows, as far as they tell."""
    there: set[TableName] = set()
    ended: dict[TableName, int] = {}
    for event in past:
        for change in event.changes:
            gone = _ended(change, there | rows.keys())
            there.difference_update(gone)
            ended.update(dict.fromkeys(gone, event.commit_ts))
            there.update(begun_names(change))
    return there | {name for name, last in rows.items() if last > ended.get(name, -1)}


def _ended(change: SchemaChange, known: Iterable[TableName]) -> list[TableName]:
    if isinstance(change, DropDatabase):
        return [name for name in known if name.database == change.database]
    return list(ended_names(change))
