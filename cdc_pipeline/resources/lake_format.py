"""The format of a lake: a number that grows when a new version of this package keeps things in another way than before.

It is a property of the raw snapshot, which all other tables are made from. Lakes that were made before there was one have
format 1. A newer version of the package opens older lakes, or says what to do first; an older one refuses a newer lake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.errors import LakeError
from cdc_pipeline.resources.delta import Commit, commit_metadata, table_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_pipeline.resources.lake import LakePaths

LAKE_FORMAT = 1
_PROPERTY = "cdc.lake_format"
_TABLE = "raw_topic_snapshot"


def require_known_format(spark: SparkSession, paths: LakePaths) -> None:
    """Raises LakeError, before anything is written or read, where the lake's format is not one that this version knows."""
    state = table_state(spark, paths.table(_TABLE))
    if state is None:
        return
    told = state.properties.get(_PROPERTY, "1")
    if not told.isdecimal():
        raise LakeError(
            f"{paths.home}: the lake's format ({_PROPERTY} of {_TABLE}) is {told!r}, a number is expected",
            pipeline=paths.pipeline,
        )
    if int(told) > LAKE_FORMAT:
        raise LakeError(
            f"{paths.home}: the lake has format {told}, which a newer version of cdc_pipeline has made; this one knows "
            f"formats up to {LAKE_FORMAT}. Nothing was changed: install that version again",
            pipeline=paths.pipeline,
        )


def note_format(spark: SparkSession, paths: LakePaths) -> None:
    """Writes the format down, once, where there is a raw snapshot that does not say it yet."""
    state = table_state(spark, paths.table(_TABLE))
    if state is None or _PROPERTY in state.properties:
        return
    commit = Commit(paths.writer("format"), LAKE_FORMAT, {"format": LAKE_FORMAT})
    commit_metadata(spark, paths.table(_TABLE), commit, properties={_PROPERTY: str(LAKE_FORMAT)})
