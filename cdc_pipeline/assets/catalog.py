"""The mirrors of a cut in the catalog file, from which Dagster loads its asset nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import SparkSession

from cdc_pipeline.lake.catalog import CatalogColumn, CatalogEntry, read_catalog, write_catalog
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mysql.model.table import TableName


def update_catalog(
    lake: Lake, mirrors: Sequence[MirrorEntry], *, reread: bool = False
) -> dict[TableName, CatalogEntry]:
    """Writes the mirrors of a cut to the catalog, and returns them. Looks at those with another version than there, at all
    with `reread`."""
    stored = [entry for entry in read_catalog(lake.paths) if not entry.dropped]
    known = {} if reread else {(entry.mirror_id, entry.version, entry.path): entry for entry in stored}

    def key(mirror: MirrorEntry) -> tuple[str, int, str]:
        return mirror.mirror_id, mirror.version, mirror.path

    entries = {mirror.name: known[key(mirror)] for mirror in mirrors if key(mirror) in known}
    others = catalog_entries(lake.spark, (mirror for mirror in mirrors if key(mirror) not in known))
    entries.update({entry.name: entry for entry in others})
    if others or len(entries) < len(stored):
        write_catalog(lake.paths, entries.values())
    return entries


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
