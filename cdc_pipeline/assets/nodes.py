"""Attributes of asset nodes in Dagster's UI: group, kinds, owners, tags, column lineage."""

from __future__ import annotations

import hashlib
import re
from typing import TypedDict

import dagster as dg

from cdc_pipeline.assets.keys import CHANGE_LOG, CODE_VERSION, RAW, table_key
from cdc_pipeline.lake.catalog import CatalogEntry
from cdc_pipeline.lake.delta import TableState
from cdc_pipeline.mirrors.model.source_tables import SOURCE_NAMES
from cdc_pipeline.mirrors.model.state import DELETED
from cdc_pipeline.pipeline import Pipeline

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


class NodeAttributes(TypedDict):
    """Keyword arguments of `AssetSpec`."""

    kinds: set[str]
    owners: list[str]
    tags: dict[str, str]
    code_version: str


def node_attributes(pipeline: Pipeline) -> NodeAttributes:
    """Attributes that all nodes of the pipeline share."""
    return NodeAttributes(
        kinds={"delta", "pyspark", *pipeline.source.kinds},
        owners=list(pipeline.owners),
        tags=dict(pipeline.tags),
        code_version=CODE_VERSION,
    )


def mirror_group(pipeline: str, database: str) -> str:
    """`<pipeline>_<database>`; a digest keeps names unique whose characters Dagster does not allow in groups."""
    plain = _NOT_IN_GROUPS.sub("_", database)
    suffix = "" if plain == database and database else f"_{hashlib.sha256(database.encode()).hexdigest()[:6]}"
    return f"{pipeline}_{plain}{suffix}"


def mirror_lineage(pipeline: str, entry: CatalogEntry) -> dg.TableColumnLineage:
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


def decoded_lineage(pipeline: str, table: TableState | None) -> dict[str, dg.TableColumnLineage]:
    """Lineage of a decoded table's columns to `raw_topic_snapshot`; empty if the table does not exist yet."""
    if table is None:
        return {}
    raw = table_key(pipeline, RAW)
    dependencies = {
        name: [dg.TableColumnDep(asset_key=raw, column_name=_FROM_RECORD.get(name, "value"))]
        for name in table.schema.names
    }
    return {"dagster/column_lineage": dg.TableColumnLineage(dependencies)}
