"""Changes in words, for people who read `ddl_history` and the gaps of a mirror."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.schemas.changes import (
    AddColumn,
    AddIndex,
    AddPrimaryKey,
    AddUniqueKey,
    AlterTable,
    ChangeColumn,
    CreateTable,
    CreateTableAsSelect,
    CreateTableLike,
    DropDatabase,
    NoRowEffect,
    NoTableEffect,
    NotSupported,
    NotSupportedClause,
    OfShard,
    PartitionDefinitionClause,
    PartitionRowsClause,
    RecoverDatabase,
    RecoverTable,
    RenameColumn,
    RenameIndex,
    RenameTable,
)
from cdc_pipeline.schemas.partition_clauses import described_partition_clause

if TYPE_CHECKING:
    from cdc_pipeline.schemas.changes import Clause, SchemaChange


def described(change: SchemaChange) -> str:
    """The change in words, for people who read the history."""
    if isinstance(change, AlterTable):
        return f"AlterTable {change.name}: {', '.join(described_clause(clause) for clause in change.clauses)}"
    if isinstance(change, OfShard):
        return f"{change.name}: {described(change.change)}"
    if isinstance(change, NoTableEffect):
        return f"NoTableEffect {change.what}"
    if isinstance(change, NotSupported):
        return f"NotSupported {change.reason}"
    if isinstance(change, DropDatabase):
        return f"DropDatabase {change.database}"
    if isinstance(change, RecoverDatabase):
        return f"RecoverDatabase {change.database}{f' as {change.new_database}' if change.new_database else ''}"
    text = f"{type(change).__name__} {change.name}"
    if isinstance(change, RenameTable):
        return f"{text} to {change.new_name}"
    if isinstance(change, RecoverTable) and change.new_name is not None:
        return f"{text} as {change.new_name}"
    if isinstance(change, CreateTableAsSelect):
        return f"{text} as {change.query}"
    if isinstance(change, CreateTableLike):
        return f"{text} like {change.source}"
    if isinstance(change, CreateTable):
        columns = ", ".join(f"{column.name} {column.type}" for column in change.schema.columns)
        return f"{text} ({columns})"
    return text


def described_clause(clause: Clause) -> str:
    """The clause in words."""
    kind = type(clause).__name__
    if isinstance(clause, AddColumn):
        return f"{kind} {clause.column.name} {clause.column.type}"
    if isinstance(clause, ChangeColumn):
        return f"{kind} {clause.name} to {clause.column.name} {clause.column.type}"
    if isinstance(clause, (RenameColumn, RenameIndex)):
        return f"{kind} {clause.name} to {clause.new_name}"
    if isinstance(clause, AddPrimaryKey):
        return f"{kind} ({', '.join(clause.columns)})"
    if isinstance(clause, AddIndex):
        return f"{kind} {clause.index.name} ({', '.join(clause.index.columns)})"
    if isinstance(clause, AddUniqueKey):
        return f"{kind} {clause.key.name} ({', '.join(clause.key.columns)})"
    if isinstance(clause, (NoRowEffect, NotSupportedClause)):
        return f"{kind} {clause.what}"
    if isinstance(clause, (PartitionRowsClause, PartitionDefinitionClause)):
        return f"{kind} {described_partition_clause(clause)}".strip()
    return f"{kind} {getattr(clause, 'name', '')}".strip()
