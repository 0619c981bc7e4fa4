"""Which changes take values or rows away that upstream cannot give again: those that a policy may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.schemas.changes import (
    AlterTable,
    ChangeColumn,
    DropColumn,
    DropPartition,
    DropTable,
    ExchangePartition,
    FirstPartition,
    OfShard,
    TruncatePartition,
    TruncateTable,
)
from cdc_pipeline.schemas.conversions import unsure_conversion

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdc_pipeline.schemas.changes import Clause, SchemaChange
    from cdc_pipeline.schemas.table import TableName, TableSchema


def destroys(change: SchemaChange, schema_of: Callable[[TableName], TableSchema]) -> tuple[TableName, ...]:
    """The tables of which the change takes values or rows away. DROP DATABASE names none: it is told table by table."""
    if isinstance(change, OfShard):
        return (change.name,) if destroys(change.change, lambda name: schema_of(change.name)) else ()
    if isinstance(change, (TruncateTable, DropTable)):
        return (change.name,)
    if not isinstance(change, AlterTable):
        return ()
    exchanged = tuple(clause.table for clause in change.clauses if isinstance(clause, ExchangePartition))
    if exchanged or any(_destroys(clause, schema_of(change.name)) for clause in change.clauses):
        return (change.name, *exchanged)
    return ()


def _destroys(clause: Clause, schema: TableSchema) -> bool:
    if isinstance(clause, ChangeColumn):
        column = schema.find(clause.name)
        return column is not None and unsure_conversion(column.type, clause.column.type) is not None
    return isinstance(clause, (DropColumn, DropPartition, TruncatePartition, FirstPartition))
