"""Asset keys of a pipeline (DESIGN §3)."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    from cdc_pipeline.schemas.table import TableName

CODE_VERSION = version("cdc_pipeline")
RAW, CHANGE_LOG, DDL_HISTORY = "raw_topic_snapshot", "change_log", "ddl_history"
WATERMARKS, DEAD_LETTERS, CUTS = "watermarks", "dead_letters", "consistent_cuts"


def table_key(pipeline: str, table: str) -> dg.AssetKey:
    return dg.AssetKey([pipeline, table])


def mirror_key(pipeline: str, name: TableName) -> dg.AssetKey:
    return dg.AssetKey([pipeline, "mirror", name.database, name.table])
