"""Reads CREATE TABLE, behind its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.schemas.changes import AddColumn, CreateTable, CreateTableLike
from cdc_pipeline.schemas.ddl_columns import read_column
from cdc_pipeline.schemas.ddl_keys import charset_of, read_key, read_table_name, read_table_option
from cdc_pipeline.schemas.evolution import altered
from cdc_pipeline.schemas.table import TableName, TableSchema

if TYPE_CHECKING:
    from cdc_pipeline.schemas.changes import Clause
    from cdc_pipeline.schemas.ddl_tokens import Cursor

_QUERY_WORDS = ("SELECT", "WITH", "TABLE", "VALUES", "AS", "IGNORE", "REPLACE")
_PARTITIONING_WORDS = (
    *("PARTITION", "PARTITIONS", "SUBPARTITION", "SUBPARTITIONS", "BY", "LINEAR", "HASH", "KEY", "RANGE", "LIST"),
    *("COLUMNS", "ALGORITHM", "=", "INTERVAL", "FIRST", "LAST", "LESS", "THAN", "NULL", "MAXVALUE", "UPDATE"),
    *("INDEXES", "AUTO", "SYSTEM_TIME", "LIMIT"),
)


def read_create_table(
    cursor: Cursor, name: TableName, database: str, *, if_not_exists: bool
) -> CreateTable | CreateTableLike:
    """The table that the words after CREATE TABLE `name` define.

    Raises DdlSyntaxError for what it cannot read, AS SELECT with it, and SchemaConflictError for a definition that
    contradicts itself. The caller checks that nothing is left.
    """
    if cursor.accept("LIKE"):
        return CreateTableLike(name, read_table_name(cursor, database), if_not_exists)
    if cursor.accept("(", "LIKE"):
        source = read_table_name(cursor, database)
        cursor.expect(")")
        return CreateTableLike(name, source, if_not_exists)
    if not cursor.at("(") or any(cursor.at("(", word) for word in (*_QUERY_WORDS, "(")):
        raise cursor.error("CREATE TABLE without a column list: its columns are those of a query")
    clauses = _read_elements(cursor)
    options = _read_options(cursor)
    start = cursor.position
    partitioning = cursor.since(start) if _read_partitioning(cursor) else None
    cursor.accept("START", "TRANSACTION")  # so MySQL logs CREATE TABLE … AS SELECT, the rows follow
    if cursor.at_any(*_QUERY_WORDS):
        raise cursor.error("CREATE TABLE with a query: it may add columns")
    empty = TableSchema((), charset=charset_of(options), partitioning=partitioning)
    return CreateTable(name, altered(empty, clauses), if_not_exists)


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


def _read_partitioning(cursor: Cursor) -> bool:
    """Moves past PARTITION BY with all that belongs to it; False where it is not next."""
    if not cursor.at("PARTITION", "BY"):
        return False
    while True:
        if cursor.at("("):
            cursor.group()
        elif cursor.accept("PARTITIONS") or cursor.accept("SUBPARTITIONS") or cursor.accept("ALGORITHM", "="):
            cursor.integer()
        elif cursor.accept_any(*_PARTITIONING_WORDS) is None:
            return True
