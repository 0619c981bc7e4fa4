"""Values as Dagster's UI shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdc_pipeline.catalog import CatalogEntry
    from cdc_pipeline.resources.delta import TableState
    from cdc_pipeline.sources.intake import OffsetRange


def ranges_table(ranges: Iterable[OffsetRange]) -> dg.TableMetadataValue:
    """Offsets from–to per partition."""
    columns = ["topic", "partition", "first", "last", "records"]
    records = [
        dg.TableRecord(
            {name: str(getattr(span, name)) for name in columns}
        )  # offsets may be beyond JSON's exact numbers
        for span in ranges
    ]
    return dg.MetadataValue.table(
        records=records, schema=dg.TableSchema(columns=[dg.TableColumn(name) for name in columns])
    )


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
