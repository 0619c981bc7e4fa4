"""Converts schemas, statements and clauses to short text, for cases that are written by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from cdc_pipeline.mysql.model.base_changes import BaseClause
from cdc_pipeline.mysql.model.schema_changes import Clause, ColumnPosition, SchemaChange
from cdc_pipeline.mysql.model.table import Column, Default, ForeignKey, MySqlType, PlainIndex, TableSchema, UniqueKey

CASES = Path(__file__).parents[1] / "mysql" / "cases" / "ddl"
_BEFORE = {
    "charset": "charset",
    "collation": "collate",
    "column": "to",
    "database": "in",
    "default": "to",
    "name": "of",
    "new_database": "to",
    "new_name": "to",
    "partitions": "into",
    "query": "as",
    "source": "like",
    "table": "with",
}
"""Field → the word before it, unless it is the first field."""


def cases(name: str) -> Any:
    """The content of a case file."""
    return yaml.safe_load((CASES / name).read_text(encoding="utf-8"))


def changes_as_text(changes: Iterable[SchemaChange]) -> str:
    return "\n".join(change_as_text(change) for change in changes)


def change_as_text(change: SchemaChange | Clause) -> str:
    """The class name as words, then all fields that are neither empty nor their default."""
    head, lines = [re.sub("(?<=[a-z])(?=[A-Z])", " ", type(change).__name__).lower()], list[str]()
    for field in fields(change):
        value = getattr(change, field.name)
        if value in ((), field.default):
            continue
        if isinstance(value, TableSchema):
            lines += _schema(value)
        elif isinstance(value, tuple) and isinstance(value[0], BaseClause):
            lines += [change_as_text(clause) for clause in value]
        elif isinstance(value, bool):
            head.append(("" if value else "not ") + field.name.replace("_", " "))
        else:
            head += [_BEFORE[field.name]] if len(head) > 1 and field.name in _BEFORE else []
            head.append(_value(value))
    return "\n  ".join([" ".join(head), *lines])


def _value(value: Any) -> str:
    match value:
        case Column():
            return column_as_text(value)
        case Default() | None:
            return _default(value)
        case UniqueKey():
            return _unique(value)
        case PlainIndex(name, columns):
            return f"{name or '-'} {_names(columns)}"
        case ForeignKey():
            return _foreign(value)
        case ColumnPosition(after):
            return "first" if after is None else f"after {after}"
        case tuple():
            return _names(value)
    return str(value)


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


def _names(names: Iterable[object]) -> str:
    return f"({', '.join(map(str, names))})"


def _unique(key: UniqueKey) -> str:
    return f"{key.name or '-'} {_names(key.columns)}{'' if key.exact else ' inexact'}"


def _foreign(key: ForeignKey) -> str:
    table = str(key.table).removeprefix(".")
    return f"{key.name} {_names(key.columns)} references {table} {_names(key.referenced)} {key.actions.lower()}"


def _schema(schema: TableSchema) -> list[str]:
    lines = [column_as_text(column) for column in schema.columns]
    if schema.primary_key:
        lines.append(f"primary key {_names(schema.primary_key)}")
    lines.extend(f"unique {_unique(key)}" for key in schema.unique_keys)
    lines.extend(f"foreign key {_foreign(key)}" for key in schema.foreign_keys)
    if schema.engine:
        lines.append(f"engine {schema.engine}")
    if schema.charset is not None:
        lines.append(f"charset {schema.charset}")
    if schema.partitioning is not None:
        lines.append(str(schema.partitioning))
    return lines
