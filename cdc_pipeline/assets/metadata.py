"""Metadata values for Dagster's UI."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from cdc_pipeline.assets.column_texts import COLUMN_TEXTS
from cdc_pipeline.checks.results import code_span

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cdc_pipeline.lake.catalog import CatalogEntry
    from cdc_pipeline.lake.delta import TableState
    from cdc_pipeline.mirrors.cuts.cut_report import ReportedStatement
    from cdc_pipeline.sources.intake import OffsetSpan

STATEMENTS = "ddl"
"""Metadata entry of `consistent_cuts` with the DDL statements of the cut."""
MOST_STATEMENTS = 100
"""Further statements of a cut are in `ddl_history` only."""


def table_value(columns: Sequence[str], rows: Iterable[Sequence[str | int | float]]) -> dg.TableMetadataValue:
    """A metadata table; the values of a row are in the order of `columns`."""
    return dg.MetadataValue.table(
        records=[dg.TableRecord(dict(zip(columns, row, strict=True))) for row in rows],
        schema=dg.TableSchema(columns=[dg.TableColumn(name) for name in columns]),
    )


def statements_metadata(statements: Sequence[ReportedStatement]) -> dict[str, dg.TableMetadataValue]:
    """Metadata entry with the first DDL statements of a cut; empty without statements."""
    if not statements:
        return {}
    rows = (
        (
            statement.status,
            ", ".join(map(str, statement.tables)),
            statement.statement,
            statement.effect,
            str(statement.position),
        )
        for statement in statements[:MOST_STATEMENTS]
    )
    return {STATEMENTS: table_value(["status", "tables", "statement", "effect", "position"], rows)}


def ranges_table(ranges: Iterable[OffsetSpan]) -> dg.TableMetadataValue:
    """The first and last offset of each partition."""
    columns = ["topic", "partition", "first", "last"]
    # as text: JSON numbers are exact up to 2^53 only
    return table_value(columns, ([str(getattr(span, name)) for name in columns] for span in ranges))


def delta_columns(table: TableState | None) -> dict[str, dg.TableSchema]:
    """Metadata entry with the column schema of one of the lake's own tables; empty if the table does not exist yet."""
    if table is None:
        return {}
    columns = [
        dg.TableColumn(field.name, type=field.dataType.simpleString(), description=COLUMN_TEXTS.get(field.name))
        for field in table.schema
    ]
    return {"dagster/column_schema": dg.TableSchema(columns=columns)}


def column_schema(entry: CatalogEntry) -> dg.TableSchema:
    """The mirror's columns: type is the Delta type, description is the MySQL type as Markdown."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(column.name, column.delta_type, column.mysql_type and code_span(column.mysql_type))
            for column in entry.columns
        ]
    )
