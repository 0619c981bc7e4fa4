"""Dry run: the statements that wait, and what each does to which mirrors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import Row

from cdc_pipeline.lake.control_tables import read_rows
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.tables.ddl_history import APPROVED_BY, HELD, NO_EFFECT, NOT_APPLIED, PENDING
from cdc_pipeline.mirrors.changes.progress import PublishedCut
from cdc_pipeline.mirrors.model.ddl_events import ddl_event, in_upstream_order
from cdc_pipeline.mirrors.planning.included_ddl import mirrored_event
from cdc_pipeline.mirrors.settings.selection import TableSelection
from cdc_pipeline.mysql.model.base_changes import sql_words
from cdc_pipeline.mysql.model.schema_changes import (
    AlterTable,
    DropColumn,
    DropPartition,
    SchemaChange,
    TruncatePartition,
)
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import Position

_STATUSES = dict.fromkeys(("NoRowEffect", "NoTableEffect"), f"{NO_EFFECT}:")
_STATUSES |= dict.fromkeys(("NotSupported", "NotSupportedClause"), f"{NOT_APPLIED}:")


@dataclass(frozen=True)
class PendingStatement:
    """A statement that no cut has applied yet."""

    position: Position
    commit_ts: int
    status: str
    """`held`, `approved by run …` if a run has begun to apply it, or `pending` above the resolved TSO."""
    sql: str
    effect: str
    """What it does to mirrors, clause by clause, in the words of SQL and of `ddl_history`."""
    loss: str
    """The rows and values that mirrors lose; empty if they lose none, or if only its plan can say."""
    waiting: int
    """The number of row changes that wait for it, of all tables that it holds."""


def pending_statements(lake: Lake, cut: PublishedCut, selection: TableSelection) -> tuple[PendingStatement, ...]:
    """The statements that wait for an approval or for the resolved TSO, in stream order, apart from those that concern
    excluded tables only. `cut`: the newest one."""
    found = [row for status in (PENDING, HELD) for row in read_rows(lake, "ddl_history", ("status", "=", status))]
    statuses = {
        Position(row["topic"], row["partition"], row["offset"]): row["effect"]
        if (row["effect"] or "").startswith(APPROVED_BY)
        else row["status"]
        for row in found
    }
    rows = {TableName(mirror["database"], mirror["table"]): mirror["rows"] for mirror in cut.mirrors}
    return tuple(
        PendingStatement(
            event.position,
            event.commit_ts,
            statuses[event.position],
            event.sql,
            "; ".join(change.description(_words) for change in changes),
            "; ".join(lost for change in changes for lost in _losses(change, rows)),
            sum(table.rows for table in cut.held if table.statement == event.position),
        )
        for event in in_upstream_order(ddl_event(Row(**row)) for row in found if row["kind"] is not None)
        if (changes := mirrored_event(event, selection).changes)
    )


def _words(name: str) -> str:
    return _STATUSES.get(name) or sql_words(name)


def _losses(change: SchemaChange, rows: Mapping[TableName, int]) -> Iterator[str]:
    names = change.names()
    for name in (*names.emptied, *names.dropped):
        if name in rows:
            yield f"all {rows[name]:,} rows of {name}"
    if isinstance(change, AlterTable) and change.name in rows:
        for clause in change.clauses:
            if isinstance(clause, DropColumn):
                yield f"the values of column {clause.name} in {rows[change.name]:,} rows of {change.name}"
            elif isinstance(clause, TruncatePartition | DropPartition):
                which = f"in the partitions {', '.join(clause.names)}" if clause.names else "in all partitions"
                yield f"those of {rows[change.name]:,} rows of {change.name} that are {which}"
