"""The columns that CREATE TABLE … SELECT takes from its query: those that it names of tables that are known."""

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
    """A query of which not every column is known."""


def queried_columns(
    query: str, database: str, schema_of: Callable[[TableName], TableSchema | None]
) -> tuple[Column, ...]:
    """The columns in the query's order: `*`, `t.*` and columns with or without another name, of one or several tables.

    They are plain columns: MySQL takes type, NULL and default over, but neither keys nor AUTO_INCREMENT nor formulas.
    Raises QueryError for expressions, whose types are not known here, and for tables that are not known.
    """
    try:
        tree = sqlglot.parse_one(query, dialect="mysql")
    except (SqlglotError, RecursionError) as error:
        raise QueryError(f"the query cannot be read: {query[:60]}") from error
    if not isinstance(tree, exp.Select) or tree.args.get("with_") or tree.args.get("from_") is None:
        raise QueryError(f"the query is no plain SELECT of tables: {query[:60]}")
    sources = _sources(tree, database, schema_of)
    columns = [column for item in tree.expressions for column in _columns(item, sources)]
    if len({column.name.casefold() for column in columns}) < len(columns):
        raise QueryError(f"two columns of one name: {query[:60]}")
    return tuple(columns)


def queried_tables(query: str, database: str) -> frozenset[TableName]:
    """All tables that the query names; none where it cannot be read, of which no column is known then either."""
    try:
        tree = sqlglot.parse_one(query, dialect="mysql")
    except (SqlglotError, RecursionError):
        return frozenset()
    return frozenset(TableName(table.db or database, table.name) for table in tree.find_all(exp.Table) if table.name)


def _sources(
    tree: exp.Select, database: str, schema_of: Callable[[TableName], TableSchema | None]
) -> dict[str, tuple[TableSchema, bool]]:
    """The tables of FROM and JOIN by the names that the query has for them, and whether an outer join may leave them out."""
    found: dict[str, tuple[TableSchema, bool]] = {}
    joins = tree.args.get("joins") or []
    for table, outer in [(tree.args["from_"].this, False), *((join.this, bool(join.side)) for join in joins)]:
        if not isinstance(table, exp.Table) or not table.name:
            raise QueryError(f"no plain table: {table.sql(dialect='mysql')}")
        name = TableName(table.db or database, table.name)
        schema = schema_of(name)
        if schema is None:
            raise QueryError(f"the definition of {name} is not known")
        found[(table.alias or table.name).casefold()] = (schema, outer)
    return found


def _columns(item: exp.Expression, sources: dict[str, tuple[TableSchema, bool]]) -> list[Column]:
    if isinstance(item, exp.Star):
        return [_plain(column, outer) for schema, outer in sources.values() for column in schema.columns]
    wanted = item.this if isinstance(item, exp.Alias) else item
    if not isinstance(wanted, exp.Column):
        raise QueryError(f"the type of {item.sql(dialect='mysql')} is not known")
    of = {wanted.table.casefold(): sources[wanted.table.casefold()]} if wanted.table.casefold() in sources else sources
    if wanted.table and wanted.table.casefold() not in sources:
        raise QueryError(f"no table is called {wanted.table}")
    if isinstance(wanted.this, exp.Star):
        return [_plain(column, outer) for schema, outer in of.values() for column in schema.columns]
    found = [(column, outer) for schema, outer in of.values() if (column := schema.find(wanted.name)) is not None]
    if len(found) != 1:
        raise QueryError(f"{len(found)} tables have a column {wanted.name}")
    column, outer = found[0]
    return [replace(_plain(column, outer), name=item.alias or column.name)]


def _plain(column: Column, outer: bool) -> Column:
    return replace(column, nullable=column.nullable or outer, generated=None, expression=None)


def created_as(own: TableSchema, queried: tuple[Column, ...]) -> tuple[Column, ...]:
    """The table's columns: its own that the query does not have, then the query's, each by its own definition if it has
    one."""
    names = {column.name.casefold() for column in queried}
    first = [column for column in own.columns if column.name.casefold() not in names]
    return (*first, *(own.find(column.name) or column for column in queried))
