"""Values as Dagster's UI shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cdc_pipeline.lake.catalog import CatalogEntry
    from cdc_pipeline.lake.delta import TableState
    from cdc_pipeline.sources.intake import OffsetRange


def shown_table(columns: Sequence[str], rows: Iterable[Sequence[str | int | float]]) -> dg.TableMetadataValue:
    """A table of these rows, their values in the order of the columns."""
    return dg.MetadataValue.table(
        records=[dg.TableRecord(dict(zip(columns, row, strict=True))) for row in rows],
        schema=dg.TableSchema(columns=[dg.TableColumn(name) for name in columns]),
    )


def ranges_table(ranges: Iterable[OffsetRange]) -> dg.TableMetadataValue:
    """Offsets from–to per partition."""
    columns = ["topic", "partition", "first", "last", "records"]
    # as texts: offsets may be beyond JSON's exact numbers
    return shown_table(columns, ([str(getattr(span, name)) for name in columns] for span in ranges))


def delta_columns(table: TableState | None) -> dict[str, dg.TableSchema]:
    """The columns of a table as it is, under the name by which Dagster finds them; nothing where there is none yet."""
    if table is None:
        return {}
    columns = [dg.TableColumn(field.name, type=field.dataType.simpleString()) for field in table.schema]
    return {"dagster/column_schema": dg.TableSchema(columns=columns)}


def column_schema(entry: CatalogEntry) -> dg.TableSchema:
    """The mirror's columns with their Delta types, and upstream's types as the description."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(column.name, type=column.delta_type, description=column.mysql_type)
            for column in entry.columns
        ]
    )
