"""The asset nodes of a pipeline: their keys, their attributes in Dagster's UI (group, kinds, owners, tags, column lineage),
and the catalog file of mirrors, from which Dagster loads them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
from pyspark.sql import SparkSession

from cdc_pipeline.checks.results import CheckedAssets
from cdc_pipeline.lake.catalog import CatalogColumn, CatalogEntry, read_catalog, write_catalog
from cdc_pipeline.lake.delta import TableState, table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry
from cdc_pipeline.mirrors.model.source_tables import SOURCE_NAMES
from cdc_pipeline.mirrors.model.state import DELETED, MirrorState
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.pipeline import Pipeline

RULES = ("contracts", "dialects", "mirrors/changes", "mirrors/execution", "mirrors/merge", "mirrors/planning", "mysql")
"""Rooms that decide what decoded tables and mirrors contain."""


def rules_version(package: Path) -> str:
    """Hash of the modules in `RULES`."""
    files = sorted(file for room in RULES for file in (package / room).rglob("*.py"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]


CODE_VERSION = rules_version(Path(__file__).parents[1])
_PLAIN = re.compile(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)*")
RAW, CHANGE_LOG, DDL_HISTORY = "raw_topic_snapshot", "change_log", "ddl_history"
LIFECYCLE = "cdc/lifecycle"
WATERMARKS, DEAD_LETTERS, CUTS = "watermarks", "dead_letters", "consistent_cuts"


def table_key(pipeline: Pipeline, *table: str) -> dg.AssetKey:
    return dg.AssetKey(pipeline.translate_key((pipeline.name, *table)))


def mirror_key(pipeline: Pipeline, name: TableName) -> dg.AssetKey:
    return table_key(pipeline, "mirror", name.database, name.table)


def checked_assets(pipeline: Pipeline) -> CheckedAssets:
    return CheckedAssets(table_key(pipeline, CUTS), partial(mirror_key, pipeline))


def name_safe_key(key: dg.AssetKey) -> dg.AssetKey:
    """The key, or a substitute with a digest if Dagster cannot derive a unique output name from the key.

    Dagster names the outputs of a step after asset keys and accepts letters, digits and underscores only.
    """
    if all(_PLAIN.fullmatch(part) for part in key.path):
        return key
    digest = hashlib.sha256("\0".join(key.path).encode()).hexdigest()[:16]
    return dg.AssetKey([*key.path[:2], f"named_{digest}"])


_NOT_IN_GROUPS = re.compile(r"[^A-Za-z0-9_]")
_FROM_RECORD = {"topic": "topic", "partition": "partition", "offset": "offset", "batch_id": "batch_id"}
"""Columns of decoded tables that are Kafka metadata; all others come from the value of the record."""
_FROM_CHANGE_LOG = {
    "_commit_ts": "commit_ts",
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    DELETED: "op",
}


def table_spec(pipeline: Pipeline, table: str, **others: Any) -> dg.AssetSpec:
    """The node of one of the lake's own tables. `others`: further attributes."""
    return node_spec(pipeline, table_key(pipeline.untranslated, table), table, pipeline.paths.table(table), **others)


def node_spec(pipeline: Pipeline, key: dg.AssetKey, name: str, uri: str, **others: Any) -> dg.AssetSpec:
    """The node of a table. `name`: in the pipeline; `others`: further attributes."""
    return dg.AssetSpec(
        key,
        group_name=pipeline.name,
        kinds={"delta", "pyspark", *pipeline.source.kinds},
        owners=list(pipeline.owners),
        tags=dict(pipeline.tags),
        code_version=CODE_VERSION,
        # by which Dagster recognizes a table. No other pipeline has them
        metadata={"dagster/storage_kind": "delta", "dagster/table_name": f"{pipeline.name}.{name}", "dagster/uri": uri},
        **others,
    )


def mirror_group(pipeline: str, database: str) -> str:
    """`<pipeline>_<database>`; a digest keeps names unique whose characters Dagster does not allow in groups."""
    plain = _NOT_IN_GROUPS.sub("_", database)
    suffix = "" if plain == database and database else f"_{hashlib.sha256(database.encode()).hexdigest()[:6]}"
    return f"{pipeline}_{plain}{suffix}"


def mirror_lineage(pipeline: Pipeline, entry: CatalogEntry) -> dg.TableColumnLineage:
    """Lineage of a mirror's columns to `change_log`: to the images, or to the column of the same metadata."""
    log = table_key(pipeline, CHANGE_LOG)
    metadata = {
        name: [dg.TableColumnDep(asset_key=log, column_name=column)] for name, column in _FROM_CHANGE_LOG.items()
    }
    images = [dg.TableColumnDep(asset_key=log, column_name=name) for name in ("after", "before")]
    # a column with a MySQL type is an upstream column, whatever its name
    known = {column.name: {} if column.mysql_type else metadata for column in entry.columns}
    if entry.merged:
        sources = zip(SOURCE_NAMES, ("database", "table"), strict=True)
        names = {name: [dg.TableColumnDep(asset_key=log, column_name=column)] for name, column in sources}
        known |= dict.fromkeys(SOURCE_NAMES, names)
    return dg.TableColumnLineage({name: found.get(name, images) for name, found in known.items()})


def decoded_lineage(pipeline: Pipeline, table: TableState | None) -> dict[str, dg.TableColumnLineage]:
    """Lineage of a decoded table's columns to `raw_topic_snapshot`; empty if the table does not exist yet."""
    if table is None:
        return {}
    raw = table_key(pipeline, RAW)
    dependencies = {
        name: [dg.TableColumnDep(asset_key=raw, column_name=_FROM_RECORD.get(name, "value"))]
        for name in table.schema.names
    }
    return {"dagster/column_lineage": dg.TableColumnLineage(dependencies)}


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
