"""Schemas and changes as short text, so that cases can be read and written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml  # type: ignore[import-untyped]

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
    from cdc_pipeline.mysql.model.partitions import Partition
    from cdc_pipeline.mysql.model.schema_changes import Clause, Position, SchemaChange
    from cdc_pipeline.mysql.model.table import Column, Default, MySqlType, TableSchema, UniqueKey

CASES = Path(__file__).parents[1] / "mysql" / "cases" / "ddl"


def cases(name: str) -> Any:
    """The content of a case file."""
    return yaml.safe_load((CASES / name).read_text(encoding="utf-8"))


def changes_as_text(changes: tuple[SchemaChange, ...]) -> str:
    return "\n".join(_change(change) for change in changes)


def schema_as_text(schema: TableSchema) -> str:
    return "\n".join(_schema(schema))


def type_as_text(kind: MySqlType) -> str:
    text = str(kind)
    if kind.charset:
        text += f" charset {kind.charset}"
    if kind.collation:
        text += f" collate {kind.collation}"
    return text


def column_as_text(column: Column) -> str:
    text = f"{column.name} {type_as_text(column.type)}"
    if not column.nullable:
        text += " not null"
    if column.default is not None:
        text += f" default {_default(column.default)}"
    if column.generated is not None:
        text += f" {column.generated} = {column.expression}"
    return text


def _default(default: Default | None) -> str:
    if default is None:
        return "none"
    if default.value is None:
        return "null"
    quoted = repr(default.value)
    prefix = {"literal": "", "number": "", "bits": "b", "hex": "x", "expression": "="}[default.kind]
    return f"= {default.value}" if prefix == "=" else prefix + quoted


def _names(names: tuple[str, ...]) -> str:
    return f"({', '.join(names)})"


def _unique(key: UniqueKey) -> str:
    return f"unique {key.name or '-'} {_names(key.columns)}{'' if key.exact else ' inexact'}"


def _schema(schema: TableSchema) -> list[str]:
    lines = [column_as_text(column) for column in schema.columns]
    if schema.primary_key:
        lines.append(f"primary key {_names(schema.primary_key)}")
    lines.extend(_unique(key) for key in schema.unique_keys)
    if schema.charset is not None:
        lines.append(f"charset {schema.charset}")
    if schema.partitioning is not None:
        lines.append(str(schema.partitioning))
    return lines


def _change(change: SchemaChange) -> str:
    match change:
        case CreateTable(name, schema, if_not_exists):
            head = f"create {'if not exists ' if if_not_exists else ''}{name}"
            return "\n  ".join([head, *_schema(schema)])
        case CreateTableAsSelect(name, columns, keys, charset, query, database, if_not_exists):
            own = "; ".join(clause_as_text(clause) for clause in (*columns, *keys))
            there = f"{' if not exists' if if_not_exists else ''}{f' charset {charset}' if charset else ''}"
            return f"create {name}{there} ({own}) in {database} as {query}"
        case RecoverTable(name, new_name):
            return f"recover {name}{'' if new_name is None else f' as {new_name}'}"
        case RecoverDatabase(database, new_database):
            return f"recover database {database}{'' if new_database is None else f' as {new_database}'}"
        case CreateTableLike(name, source, if_not_exists):
            return f"create {'if not exists ' if if_not_exists else ''}{name} like {source}"
        case AlterTable(name, clauses):
            return "\n  ".join([f"alter {name}", *(clause_as_text(clause) for clause in clauses)])
        case RenameTable(name, new_name):
            return f"rename {name} to {new_name}"
        case TruncateTable(name):
            return f"truncate {name}"
        case DropTable(name, if_exists):
            return f"drop {'if exists ' if if_exists else ''}{name}"
        case DropDatabase(database):
            return f"drop database {database}"
        case NoTableEffect(what):
            return f"no table effect: {what}"
        case NotSupported(reason, name):
            return f"not supported {name}: {reason}"


def _position(position: Position | None) -> str:
    if position is None:
        return ""
    return " first" if position.first else f" after {position.after}"


def clause_as_text(clause: Clause) -> str:
    match clause:
        case AddColumn(column, position, if_not_exists):
            return f"add {'if not exists ' if if_not_exists else ''}{column_as_text(column)}{_position(position)}"
        case DropColumn(name, if_exists):
            return f"drop {'if exists ' if if_exists else ''}{name}"
        case ChangeColumn(name, column, position, if_exists):
            return f"change {'if exists ' if if_exists else ''}{name}: {column_as_text(column)}{_position(position)}"
        case RenameColumn(name, new_name, if_exists):
            return f"rename {'if exists ' if if_exists else ''}{name} to {new_name}"
        case SetDefault(name, default, if_exists):
            return f"default {'if exists ' if if_exists else ''}of {name}: {_default(default)}"
        case AddPrimaryKey(columns):
            return f"add primary key {_names(columns)}"
        case DropPrimaryKey():
            return "drop primary key"
        case AddUniqueKey(key):
            return f"add {_unique(key)}"
        case AddIndex(index):
            return f"add index {index.name or 'without name'} {_names(index.columns)}"
        case DropIndex(name):
            return f"drop index {name}"
        case RenameIndex(name, new_name):
            return f"rename index {name} to {new_name}"
        case RenameTo(new_table):
            return f"rename to {new_table}"
        case DefaultCharset(charset, collation):
            return f"default charset {charset}{f' collate {collation}' if collation else ''}"
        case ConvertCharset(charset, collation):
            return f"convert to charset {charset}{f' collate {collation}' if collation else ''}"
        case NoRowEffect(what):
            return f"no row effect: {what}"
        case NotSupportedClause(what):
            return f"not supported: {what}"
        case TruncatePartition(names):
            return f"truncate partition {names or 'all'}"
        case DropPartition(names, if_exists):
            return f"drop partition {'if exists ' if if_exists else ''}{names}"
        case ExchangePartition(name, table, validated):
            return f"exchange partition {name!r} with {table}{'' if validated else ' not validated'}"
        case FirstPartition(bound):
            return f"first partition: {bound}"
        case AddPartitions(partitions, count, if_not_exists):
            more = _partitions(partitions) if count is None else count
            return f"add partitions {'if not exists ' if if_not_exists else ''}{more}"
        case ReorganizePartition(names, partitions):
            return f"reorganize partition {names} into {_partitions(partitions)}"
        case CoalescePartition(count):
            return f"coalesce partition {count}"
        case PartitionBy(partitioning):
            return str(partitioning)
        case RemovePartitioning():
            return "remove partitioning"
        case MergeFirstPartition(bound):
            return f"merge first partition: {bound}"
        case LastPartition(bound):
            return f"last partition: {bound}"


def _partitions(partitions: tuple[Partition, ...]) -> str:
    return ", ".join(str(partition) for partition in partitions) or "nothing"
