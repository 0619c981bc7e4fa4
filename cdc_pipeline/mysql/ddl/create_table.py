"""Reads CREATE TABLE, behind its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.mysql.ddl.column_definitions import read_column
from cdc_pipeline.mysql.ddl.evolution import altered
from cdc_pipeline.mysql.ddl.keys import charset_of, collation_of, read_key, read_table_name, read_table_option
from cdc_pipeline.mysql.ddl.partitioning import read_partitioning
from cdc_pipeline.mysql.model.schema_changes import (
    AddColumn,
    CreateTable,
    CreateTableAsSelect,
    CreateTableLike,
    PartitionBy,
)
from cdc_pipeline.mysql.model.table import TableName, TableSchema

if TYPE_CHECKING:
    from cdc_pipeline.mysql.ddl.tokens import Cursor
    from cdc_pipeline.mysql.model.schema_changes import Clause

_WORDS_IN_BRACKETS = ("SELECT", "WITH", "TABLE", "VALUES", "(")
_QUERY_WORDS = ("SELECT", "WITH", "TABLE", "VALUES", "AS", "IGNORE", "REPLACE")


def read_create_table(
    cursor: Cursor, name: TableName, database: str, *, if_not_exists: bool
) -> CreateTable | CreateTableLike | CreateTableAsSelect:
    """The table that the words after CREATE TABLE `name` define.

    Raises DdlSyntaxError for what it cannot read, and SchemaConflictError for a definition that contradicts itself. The
    caller checks that nothing is left.
    """
    if cursor.accept("LIKE"):
        return CreateTableLike(name, read_table_name(cursor, database), if_not_exists)
    if cursor.accept("(", "LIKE"):
        source = read_table_name(cursor, database)
        cursor.expect(")")
        return CreateTableLike(name, source, if_not_exists)
    clauses: tuple[Clause, ...] = ()
    if not _at_query(cursor) and cursor.at("("):
        clauses = _read_elements(cursor)
    options = _read_options(cursor)
    if cursor.at("PARTITION", "BY"):
        clauses = (*clauses, PartitionBy(read_partitioning(cursor, _after_partitioning)))
    cursor.accept("START", "TRANSACTION")  # so MySQL logs CREATE TABLE … AS SELECT, the rows follow
    if _at_query(cursor):
        columns = tuple(clause for clause in clauses if isinstance(clause, AddColumn))
        others = tuple(clause for clause in clauses if not isinstance(clause, AddColumn))
        charset, collation = charset_of(options), collation_of(options)
        query = _read_query(cursor)
        return CreateTableAsSelect(name, columns, others, charset, query, database, if_not_exists, collation)
    if not clauses:
        raise cursor.error("columns or a query expected")
    empty = TableSchema((), charset=charset_of(options), collation=collation_of(options))
    return CreateTable(name, altered(empty, clauses), if_not_exists)


def _read_query(cursor: Cursor) -> str:
    """The query up to the end of the statement, without the brackets around it."""
    cursor.accept_any("IGNORE", "REPLACE")
    cursor.accept("AS")
    if cursor.at("("):
        return cursor.group()
    start = cursor.position
    while not cursor.done and not cursor.at(";"):
        cursor.skip()
    return cursor.since(start)


def _read_elements(cursor: Cursor) -> tuple[Clause, ...]:
    """The columns and keys in the brackets, columns first: a key may name a column that comes after it."""
    columns: list[Clause] = []
    keys: list[Clause] = []
    cursor.expect("(")
    while True:
        key = read_key(cursor)
        if key is not None:
            keys.append(key)
        else:
            parsed = read_column(cursor)
            columns.append(AddColumn(parsed.column))
            keys.extend(parsed.keys)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return (*columns, *keys)


def _read_options(cursor: Cursor) -> dict[str, str]:
    options: dict[str, str] = {}
    while (option := read_table_option(cursor)) is not None:
        options[option[0]] = option[1]
        cursor.accept(",")
    return options


def _at_query(cursor: Cursor) -> bool:
    if cursor.at("WITH", "SYSTEM"):
        return False  # MariaDB's versions of rows
    return cursor.at_any(*_QUERY_WORDS) or any(cursor.at("(", word) for word in _WORDS_IN_BRACKETS)


def _after_partitioning(cursor: Cursor) -> bool:
    return _at_query(cursor) or cursor.at("START", "TRANSACTION")
