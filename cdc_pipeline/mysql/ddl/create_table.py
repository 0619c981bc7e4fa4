"""Parses CREATE TABLE after the table name."""

from __future__ import annotations

from cdc_pipeline.mysql.ddl.column_definitions import read_column
from cdc_pipeline.mysql.ddl.evolution import altered
from cdc_pipeline.mysql.ddl.keys import named_charset, read_key, read_table_option
from cdc_pipeline.mysql.ddl.partitioning import read_partitioning
from cdc_pipeline.mysql.ddl.tokens import Cursor, DdlSyntaxError
from cdc_pipeline.mysql.model.schema_changes import AddColumn, Clause, CreateTable, CreateTableLike, PartitionBy
from cdc_pipeline.mysql.model.table import TableName, TableSchema

_QUERY = (
    *("SELECT", "WITH", "TABLE", "VALUES", "AS", "IGNORE", "REPLACE"),
    *("( SELECT", "( WITH", "( TABLE", "( VALUES", "( ("),
)


def read_create_table(cursor: Cursor, name: TableName, *, if_not_exists: bool) -> CreateTable | CreateTableLike:
    """Reads the definition after CREATE TABLE `name`. The caller checks that the statement ends there.

    Raises DdlSyntaxError for unknown words and for a query, whose rows were not sent: with row logging MySQL sends columns
    and rows, and no query (canal-facts 44). Raises SchemaConflictError for a contradictory definition.
    """
    if cursor.accept("LIKE"):
        return CreateTableLike(name, cursor.read_table_name(), if_not_exists)
    if cursor.accept("( LIKE"):
        source = cursor.read_table_name()
        cursor.expect(")")
        return CreateTableLike(name, source, if_not_exists)
    clauses: tuple[Clause, ...] = ()
    if not _at_query(cursor) and cursor.at("("):
        clauses = _read_elements(cursor)
    options = _read_options(cursor)
    if cursor.at("PARTITION BY"):
        clauses = (*clauses, PartitionBy(read_partitioning(cursor, *_QUERY, "START TRANSACTION")))
    cursor.accept("START TRANSACTION")  # MySQL logs CREATE TABLE … AS SELECT with it; the rows follow as row events
    if _at_query(cursor):
        raise DdlSyntaxError("the columns and rows of a query were not sent", cursor.position)
    if not clauses:
        raise cursor.error("columns or a query expected")
    engine = options.get("ENGINE", "").lower()
    empty = TableSchema((), charset=named_charset(options), collation=options.get("COLLATE"), engine=engine)
    return CreateTable(name, altered(empty, clauses), if_not_exists)


def _read_elements(cursor: Cursor) -> tuple[Clause, ...]:
    """Reads columns and keys in brackets. Returns the columns first, as a key may be before its column.

    The keys of column definitions follow the others: TiDB numbers them so, and the lowest number decides between two keys of
    the same length (`row_key`).
    """
    columns, column_keys, keys = list[Clause](), list[Clause](), list[Clause]()

    def read_element(cursor: Cursor) -> None:
        if (key := read_key(cursor)) is not None:
            keys.append(key)
            return
        parsed = read_column(cursor)
        columns.append(AddColumn(parsed.column))
        column_keys.extend(parsed.keys)

    cursor.read_list(read_element)
    return (*columns, *keys, *column_keys)


def _read_options(cursor: Cursor) -> dict[str, str]:
    options: dict[str, str] = {}
    while (option := read_table_option(cursor)) is not None:
        options[option[0]] = option[1]
        cursor.accept(",")
    return options


def _at_query(cursor: Cursor) -> bool:
    # MariaDB's WITH SYSTEM VERSIONING is no query
    return cursor.at_any(*_QUERY) and not cursor.at("WITH SYSTEM")
