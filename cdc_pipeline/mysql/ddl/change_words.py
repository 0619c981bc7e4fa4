"""Changes in words, for people who read `ddl_history` and the gaps of a mirror."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import assert_never

from cdc_pipeline.mysql.model.partition_clauses import described_partition_clause
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
    from cdc_pipeline.mysql.model.schema_changes import Clause, SchemaChange


def described(change: SchemaChange) -> str:
    """The change in words, for people who read the history."""
    text = f"{type(change).__name__} {getattr(change, 'name', '')}"
    match change:
        case AlterTable():
            return f"{text}: {', '.join(described_clause(clause) for clause in change.clauses)}"
        case OfShard():
            return f"{change.name}: {described(change.change)}"
        case NoTableEffect():
            return f"NoTableEffect {change.what}"
        case NotSupported():
            return f"NotSupported {change.reason}"
        case DropDatabase():
            return f"DropDatabase {change.database}"
        case RecoverDatabase():
            return f"RecoverDatabase {change.database}{f' as {change.new_database}' if change.new_database else ''}"
        case RenameTable():
            return f"{text} to {change.new_name}"
        case RecoverTable():
            return text if change.new_name is None else f"{text} as {change.new_name}"
        case CreateTableAsSelect():
            return f"{text} as {change.query}"
        case CreateTableLike():
            return f"{text} like {change.source}"
        case CreateTable():
            return f"{text} ({', '.join(f'{column.name} {column.type}' for column in change.schema.columns)})"
        case TruncateTable() | DropTable():
            return text
        case _:
            assert_never(change)


def described_clause(clause: Clause) -> str:
    """The clause in words."""
    kind = type(clause).__name__
    match clause:
        case AddColumn():
            return f"{kind} {clause.column.name} {clause.column.type}"
        case ChangeColumn():
            return f"{kind} {clause.name} to {clause.column.name} {clause.column.type}"
        case RenameColumn() | RenameIndex():
            return f"{kind} {clause.name} to {clause.new_name}"
        case DefaultCharset() | ConvertCharset():
            return f"{kind} {clause.charset}{f' {clause.collation}' if clause.collation else ''}"
        case AddPrimaryKey():
            return f"{kind} ({', '.join(clause.columns)})"
        case AddIndex():
            return f"{kind} {clause.index.name} ({', '.join(clause.index.columns)})"
        case AddUniqueKey():
            return f"{kind} {clause.key.name} ({', '.join(clause.key.columns)})"
        case NoRowEffect() | NotSupportedClause():
            return f"{kind} {clause.what}"
        case DropColumn() | SetDefault() | DropIndex() | RenameTo():
            return f"{kind} {clause.name}"
        case DropPrimaryKey():
            return kind
        case (
            TruncatePartition()
            | DropPartition()
            | ExchangePartition()
            | FirstPartition()
            | AddPartitions()
            | ReorganizePartition()
            | CoalescePartition()
            | PartitionBy()
            | RemovePartitioning()
            | MergeFirstPartition()
            | LastPartition()
        ):
            return f"{kind} {described_partition_clause(clause)}".strip()
        case _:
            assert_never(clause)
