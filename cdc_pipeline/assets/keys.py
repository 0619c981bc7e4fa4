"""Asset keys of a pipeline."""

from __future__ import annotations

import hashlib
import re
from importlib.metadata import version

import dagster as dg

from cdc_pipeline.mysql.model.table import TableName

CODE_VERSION = version("cdc_pipeline")
_PLAIN = re.compile(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)*")
RAW, CHANGE_LOG, DDL_HISTORY = "raw_topic_snapshot", "change_log", "ddl_history"
WATERMARKS, DEAD_LETTERS, CUTS = "watermarks", "dead_letters", "consistent_cuts"


def table_key(pipeline: str, table: str) -> dg.AssetKey:
    return dg.AssetKey([pipeline, table])


def mirror_key(pipeline: str, name: TableName) -> dg.AssetKey:
    return dg.AssetKey([pipeline, "mirror", name.database, name.table])


def name_safe_key(key: dg.AssetKey) -> dg.AssetKey:
    """The key, or a substitute with a digest if Dagster cannot derive a unique output name from the key.

    Dagster names the outputs of a step after asset keys and accepts letters, digits and underscores only.
    """
    if all(_PLAIN.fullmatch(part) for part in key.path):
        return key
    digest = hashlib.sha256("\0".join(key.path).encode()).hexdigest()[:16]
    return dg.AssetKey([key.path[0], "mirror", f"named_{digest}"])
