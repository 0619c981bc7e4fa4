"""Source tables of a merged mirror (`routes` with `merge`), and the columns that identify them in its rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from cdc_pipeline.mirrors.model.masks import redacted_schema
from cdc_pipeline.mysql.expressions.partition_rows import SparkCondition
from cdc_pipeline.mysql.model.table import Column, MySqlType, TableName, TableSchema
from cdc_pipeline.stored_json import StoredJson

SOURCE_DATABASE, SOURCE_TABLE = "_source_database", "_source_table"
SOURCE_NAMES = (SOURCE_DATABASE, SOURCE_TABLE)
SOURCE_OF_CHANGE = ("source_database", "source_table")
"""Columns of row changes with the key of a merged table; "" for other tables (`TableSelection.selected`)."""
SPELLED = "spelled"
"""Column of row changes with upstream's name (database, table) as the message spells it (`TableSelection.selected`)."""
_NAME = MySqlType("varchar", (64,), charset="utf8mb4")
SOURCE_COLUMNS = tuple(Column(name, _NAME, nullable=False) for name in SOURCE_NAMES)
"""The first columns of a merged mirror, and the first columns of its key."""


@dataclass(frozen=True)
class SourceTable:
    """One source table of a merged mirror."""

    name: TableName
    """The key of upstream's name."""
    schema: TableSchema
    """Upstream's definition."""
    inferred: bool = False
    """The definition comes from rows, because no CREATE TABLE was seen."""


def source_rows(name: TableName) -> SparkCondition:
    """The mirror's rows of this source table."""
    database, table = (f"decode(X'{part.encode().hex()}', 'UTF-8')" for part in (name.database, name.table))
    return SparkCondition(f"(`{SOURCE_DATABASE}` <=> {database} AND `{SOURCE_TABLE}` <=> {table})")


def rows_of_source(name: TableName, rows: SparkCondition) -> SparkCondition:
    """The condition `rows`, limited to this source table."""
    own = source_rows(name).sql
    doubtful = None if rows.doubtful is None else f"({own} AND ({rows.doubtful}))"
    return SparkCondition(f"({own} AND ({rows.sql}))", doubtful)


def conflicting_columns(columns: Iterable[str]) -> list[str]:
    """Column names of a table that conflict with `SOURCE_NAMES`."""
    return [column for column in columns if column.casefold() in SOURCE_NAMES]


def source_columns(changes: DataFrame) -> tuple[str, ...]:
    """`SOURCE_OF_CHANGE` if the changes have these columns, which only a selection with merged tables adds; else empty."""
    return SOURCE_OF_CHANGE if set(SOURCE_OF_CHANGE) <= set(changes.columns) else ()


def redacted_source_tables(sources: tuple[SourceTable, ...], masks: Collection[str]) -> tuple[SourceTable, ...]:
    """The source tables without texts that reveal values of masked columns (`masks.redacted_schema`)."""
    # by id, because a thousand source tables may share one definition
    schemas = {id(source.schema): source.schema for source in sources}
    redacted = {key: redacted_schema(schema, masks) for key, schema in schemas.items()}
    if all(redacted[key] == schema for key, schema in schemas.items()):
        return sources
    return tuple(replace(source, schema=redacted[id(source.schema)]) for source in sources)


SOURCE_TABLES_JSON = StoredJson(tuple[SourceTable, ...], shared=TableSchema)
