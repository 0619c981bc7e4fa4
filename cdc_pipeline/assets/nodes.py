"""What every node of a pipeline shows in Dagster's UI: group, kinds, owners, tags, and where its columns come from."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, TypedDict

import dagster as dg

from cdc_pipeline.assets.keys import CHANGE_LOG, CODE_VERSION, RAW, table_key
from cdc_pipeline.mirrors.model.shards import SOURCE_NAMES
from cdc_pipeline.mirrors.model.state import DELETED

if TYPE_CHECKING:
    from cdc_pipeline.lake.catalog import CatalogEntry
    from cdc_pipeline.lake.delta import TableState
    from cdc_pipeline.pipeline import Pipeline

_NOT_IN_GROUPS = re.compile(r"[^A-Za-z0-9_]")
_FROM_RECORD = {"topic": "topic", "partition": "partition", "offset": "offset", "batch_id": "batch_id"}
"""Columns of decoded tables that a record has itself; all others are in its value."""
_OF_CHANGE = {
    "_commit_ts": "commit_ts",
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    DELETED: "op",
}


class Face(TypedDict):
    """Fields of `AssetSpec`."""

    kinds: set[str]
    owners: list[str]
    tags: dict[str, str]
    code_version: str


def face(pipeline: Pipeline) -> Face:
    """What all nodes of the pipeline have alike."""
    return Face(
        kinds={"delta", "pyspark", *pipeline.source.kinds},
        owners=list(pipeline.owners),
        tags=dict(pipeline.tags),
        code_version=CODE_VERSION,
    )


def mirror_group(pipeline: str, database: str) -> str:
    """`<pipeline>_<database>`. A name that Dagster's groups cannot hold is told apart from others by a digest."""
    plain = _NOT_IN_GROUPS.sub("_", database)
    mark = "" if plain == database and database else f"_{hashlib.sha256(database.encode()).hexdigest()[:6]}"
    return f"{pipeline}_{plain}{mark}"


def mirror_lineage(pipeline: str, entry: CatalogEntry) -> dg.TableColumnLineage:
    """Each column of a mirror ← where the change log has its values: the images by name, the place by column."""
    log = table_key(pipeline, CHANGE_LOG)
    trace = {name: [dg.TableColumnDep(asset_key=log, column_name=column)] for name, column in _OF_CHANGE.items()}
    images = [dg.TableColumnDep(asset_key=log, column_name=name) for name in ("after", "before")]
    # a column that has a type upstream is upstream's, whatever its name
    places = {column.name: {} if column.mysql_type else trace for column in entry.columns}
    if entry.merged:
        of = zip(SOURCE_NAMES, ("database", "table"), strict=True)
        names = {name: [dg.TableColumnDep(asset_key=log, column_name=column)] for name, column in of}
        places |= dict.fromkeys(SOURCE_NAMES, names)
    return dg.TableColumnLineage({name: found.get(name, images) for name, found in places.items()})


def decoded_lineage(pipeline: str, table: TableState | None) -> dict[str, dg.TableColumnLineage]:
    """Each column of a decoded table ← the record's own column, or the value that was decoded."""
    if table is None:
        return {}
    raw = table_key(pipeline, RAW)
    dependencies = {
        name: [dg.TableColumnDep(asset_key=raw, column_name=_FROM_RECORD.get(name, "value"))]
        for name in table.schema.names
    }
    return {"dagster/column_lineage": dg.TableColumnLineage(dependencies)}
