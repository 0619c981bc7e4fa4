"""The columns of CREATE TABLE … SELECT: those that its query names, of known tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from cdc_pipeline.mysql.model.table import Column, TableName, TableSchema

if TYPE_CHECKING:
    from collections.abc import Callable


class QueryError(ValueError):
    """The columns of a query cannot be derived."""


def queried_columns(
    query: str, database: str, schema_of: Callable[[TableName], TableSchema | None]
) -> tuple[Column, ...]:
    """The columns in the order of the query: `*`, `t.*` and columns with or without an alias, of one or more tables.

    As in MySQL they keep type, NULL and default, but neither keys nor AUTO_INCREMENT nor formulas. Raises QueryError for
    expressions, whose types are unknown, and for unknown tables.
    """
    try:
        tree = sqlglot.parse_one(query, dialect="mysql")
    except (SqlglotError, RecursionError) as error:
        raise QueryError(f"cannot parse the query: {query[:60]}") from error
    if not isinstance(tree, exp.Select) or tree.args.get("with_") or tree.args.get("from_") is None:
        raise QueryError(f"the query is not a plain SELECT from tables: {query[:60]}")
    sources = _sources(tree, database, schema_of)
    columns = [column for item in tree.expressions for column in _columns(item, sources)]
    if len({column.name.casefold() for column in columns}) < len(columns):
        raise QueryError(f"duplicate column names in the query: {query[:60]}")
    return tuple(columns)


def queried_tables(query: str, database: str) -> frozenset[TableName]:
    """All tables of the query; none if it cannot be parsed."""
    try:
        tree = sqlglot.parse_one(query, dialect="mysql")
    except (SqlglotError, RecursionError):
        return frozenset()
    return frozenset(TableName(table.db or database, table.name) for table in tree.find_all(exp.Table) if table.name)


def _sources(
    tree: exp.Select, database: str, schema_of: Callable[[TableName], TableSchema | None]
) -> dict[str, tuple[TableSchema, bool]]:
    """The tables of FROM and JOIN by name or alias, and whether they are the optional side of an outer join."""
    sources: dict[str, tuple[TableSchema, bool]] = {}
    joins = tree.args.get("joins") or []
    for table, outer in [(tree.args["from_"].this, False), *((join.this, bool(join.side)) for join in joins)]:
        if not isinstance(table, exp.Table) or not table.name:
            raise QueryError(f"not a plain table: {table.sql(dialect='mysql')}")
        name = TableName(table.db or database, table.name)
        schema = schema_of(name)
        if schema is None:
            raise QueryError(f"unknown definition of {name}")
        sources[(table.alias or table.name).casefold()] = (schema, outer)
    return sources


def _columns(item: exp.Expression, sources: dict[str, tuple[TableSchema, bool]]) -> list[Column]:
    if isinstance(item, exp.Star):
        return [_plain(column, outer) for schema, outer in sources.values() for column in schema.columns]
    wanted = item.this if isinstance(item, exp.Alias) else item
    if not isinstance(wanted, exp.Column):
        raise QueryError(f"unknown type of {item.sql(dialect='mysql')}")
    table = wanted.table.casefold()
    if table and table not in sources:
        raise QueryError(f"unknown table or alias {wanted.table}")
    searched = [sources[table]] if table in sources else list(sources.values())
    if isinstance(wanted.this, exp.Star):
        return [_plain(column, outer) for schema, outer in searched for column in schema.columns]
    matches = [(column, outer) for schema, outer in searched if (column := schema.find(wanted.name)) is not None]
    if len(matches) != 1:
        raise QueryError(f"{len(matches)} tables have a column {wanted.name}")
    column, outer = matches[0]
    return [replace(_plain(column, outer), name=item.alias or column.name)]


def _plain(column: Column, outer: bool) -> Column:
    return replace(column, nullable=column.nullable or outer, generated=None, expression=None)


def created_columns(own: TableSchema, queried: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns of the created table: first those that only the statement defines, then those of the query.

    A definition in the statement overrides the one from the query.
    """
    names = {column.name.casefold() for column in queried}
    first = [column for column in own.columns if column.name.casefold() not in names]
    return (*first, *(own.find(column.name) or column for column in queried))
