"""Schemas and changes as short text, so that cases can be read and written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml  # type: ignore[import-untyped]

from cdc_pipeline.schemas.changes import (
    AddColumn,
    AddPrimaryKey,
    AddUniqueKey,
    AlterTable,
    ChangeColumn,
    CreateTable,
    CreateTableLike,
    DropColumn,
    DropDatabase,
    DropIndex,
    DropPrimaryKey,
    DropTable,
    NoRowEffect,
    NoTableEffect,
    NotSupported,
    NotSupportedClause,
    RenameColumn,
    RenameIndex,
    RenameTable,
    RenameTo,
    SetDefault,
    TruncateTable,
)

if TYPE_CHECKING:
    from cdc_pipeline.schemas.changes import Clause, Position, SchemaChange
    from cdc_pipeline.schemas.table import Column, Default, MySqlType, TableSchema, UniqueKey

CASES = Path(__file__).parent / "cases" / "ddl"


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
    prefix = {"literal": "", "bits": "b", "hex": "x", "expression": "="}[default.kind]
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
        lines.append(" ".join(schema.partitioning.split()))
    return lines


def _change(change: SchemaChange) -> str:
    match change:
        case CreateTable(name, schema, if_not_exists):
            head = f"create {'if not exists ' if if_not_exists else ''}{name}"
            return "\n  ".join([head, *_schema(schema)])
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
        case ChangeColumn(name, column, position):
            return f"change {name}: {column_as_text(column)}{_position(position)}"
        case RenameColumn(name, new_name):
            return f"rename {name} to {new_name}"
        case SetDefault(name, default):
            return f"default of {name}: {_default(default)}"
        case AddPrimaryKey(columns):
            return f"add primary key {_names(columns)}"
        case DropPrimaryKey():
            return "drop primary key"
        case AddUniqueKey(key):
            return f"add {_unique(key)}"
        case DropIndex(name):
            return f"drop index {name}"
        case RenameIndex(name, new_name):
            return f"rename index {name} to {new_name}"
        case RenameTo(new_table):
            return f"rename to {new_table}"
        case NoRowEffect(what):
            return f"no row effect: {what}"
        case NotSupportedClause(what, None):
            return f"not supported: {what}"
        case NotSupportedClause(what, other):
            return f"not supported, also of {other}: {what}"
