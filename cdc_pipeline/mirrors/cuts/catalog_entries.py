"""The mirrors of a cut as entries of the catalog file for Dagster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.lake.catalog import CatalogColumn, CatalogEntry
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.mirrors.model.state import MirrorState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

    from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry


def catalog_entries(spark: SparkSession, mirrors: Iterable[MirrorEntry]) -> list[CatalogEntry]:
    """One entry per mirror, with its Delta types and upstream's MySQL types."""
    entries = []
    for mirror in mirrors:
        table = table_state(spark, mirror.path)
        if table is None:
            continue
        state = MirrorState.from_properties(table.properties)
        masks = dict(state.masks)
        mysql_types = {
            column.name: f"{column.type}, masked ({masks[column.name]})" if column.name in masks else str(column.type)
            for column in state.schema.columns
        }
        mysql_types |= {column.name: f"computed as {column.sql}" for column in state.computed_shown}
        columns = tuple(
            CatalogColumn(field.name, field.dataType.simpleString(), mysql_types.get(field.name, ""))
            for field in table.schema
        )
        entries.append(
            CatalogEntry(
                mirror.name.database,
                mirror.name.table,
                mirror.path,
                columns,
                mirror_id=mirror.mirror_id,
                upstream=str(state.upstream or ""),
                merged=tuple(str(name) for name in sorted(source.name for source in state.source_tables or ())),
                version=mirror.version,
            )
        )
    return entries
