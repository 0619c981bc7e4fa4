"""Which changes take values or rows away that upstream cannot give again: those that a policy may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import assert_never

from cdc_pipeline.mysql.expressions.conversions import unsure_conversion
from cdc_pipeline.mysql.model.schema_changes import (
    AddColumn,
    AddIndex,
    AddPartitions,
    AddPrimaryKey,
    AddUniqueKey,
    AlterTable,
    ChangeColumn,
    CoalescePartition,
    ConvertCharset,
    CreateTable,
    CreateTableAsSelect,
    CreateTableLike,
    DefaultCharset,
    DropColumn,
    DropDatabase,
    DropIndex,
    DropPartition,
    DropPrimaryKey,
    DropTable,
    ExchangePartition,
    FirstPartition,
    LastPartition,
    MergeFirstPartition,
    NoRowEffect,
    NoTableEffect,
    NotSupported,
    NotSupportedClause,
    OfShard,
    PartitionBy,
    RecoverDatabase,
    RecoverTable,
    RemovePartitioning,
    RenameColumn,
    RenameIndex,
    RenameTable,
    RenameTo,
    ReorganizePartition,
    SetDefault,
    TruncatePartition,
    TruncateTable,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdc_pipeline.mysql.model.schema_changes import Clause, SchemaChange
    from cdc_pipeline.mysql.model.table import TableName, TableSchema


def destroys(change: SchemaChange, schema_of: Callable[[TableName], TableSchema]) -> tuple[TableName, ...]:
    """The tables of which the change takes values or rows away. DROP DATABASE names none: it is told table by table."""
    match change:
        case OfShard():
            return (change.name,) if destroys(change.change, lambda name: schema_of(change.name)) else ()
        case TruncateTable() | DropTable():
            return (change.name,)
        case AlterTable():
            exchanged = tuple(clause.table for clause in change.clauses if isinstance(clause, ExchangePartition))
            if exchanged or any(_destroys(clause, schema_of(change.name)) for clause in change.clauses):
                return (change.name, *exchanged)
            return ()
        case (
            CreateTable()
            | CreateTableLike()
            | CreateTableAsSelect()
            | RenameTable()
            | DropDatabase()
            | RecoverTable()
            | RecoverDatabase()
            | NoTableEffect()
            | NotSupported()
        ):
            return ()
        case _:
            assert_never(change)


def _destroys(clause: Clause, schema: TableSchema) -> bool:
    match clause:
        case ChangeColumn():
            column = schema.find(clause.name)
            return column is not None and unsure_conversion(column.type, clause.column.type) is not None
        case DropColumn() | DropPartition() | TruncatePartition() | FirstPartition() | ExchangePartition():
            return True
        case (
            AddColumn()
            | RenameColumn()
            | SetDefault()
            | AddPrimaryKey()
            | DropPrimaryKey()
            | AddUniqueKey()
            | AddIndex()
            | DropIndex()
            | RenameIndex()
            | RenameTo()
            | DefaultCharset()
            | ConvertCharset()
            | NoRowEffect()
            | NotSupportedClause()
            | AddPartitions()
            | ReorganizePartition()
            | CoalescePartition()
            | PartitionBy()
            | RemovePartitioning()
            | MergeFirstPartition()
            | LastPartition()
        ):
            return False
        case _:
            assert_never(clause)
