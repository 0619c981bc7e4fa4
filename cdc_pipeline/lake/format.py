"""The format of a lake: a number that grows when a new version of this package keeps things in another way than before.

It is a property of the raw snapshot, which all other tables are made from. Format 1 is that of 0.1.0, which did not write it
down; nor did what came between it and format 2. The raw snapshot is the same in all of them, so that everything else can be
made of it anew. Format 3 has gaps as values where format 2 has sentences, and stores the plan of a cut with all that it
needs; this version goes on with a lake of format 2, which is one of format 3 from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import Commit, commit_metadata, table_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_pipeline.lake.paths import LakePaths

LAKE_FORMAT = 3
_OLDEST = 2
"""The oldest format that this version goes on with."""
_PROPERTY = "cdc.lake_format"
_TABLE = "raw_topic_snapshot"
# columns that lakes of format 2 have, and those of format 1 have not
_SINCE_2 = {"batches": "kinds", "consistent_cuts": "held"}


def require_known_format(spark: SparkSession, paths: LakePaths) -> None:
    """Raises LakeError, before anything is written or read, where the lake's format is not one that this version knows."""
    state = table_state(spark, paths.table(_TABLE))
    if state is None:
        return
    told = state.properties.get(_PROPERTY) or str(_untold_format(spark, paths))
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
    if int(told) < _OLDEST:
        raise LakeError(
            f"{paths.home}: the lake has format {told}, this version of cdc_pipeline writes format {LAKE_FORMAT}. Nothing "
            f"was changed. Its records are kept as before: move all folders in there but {_TABLE} away, and the next run "
            "makes the other tables anew (docs/operations.md, Upgrade)",
            pipeline=paths.pipeline,
        )


def _untold_format(spark: SparkSession, paths: LakePaths) -> int:
    """That of a lake which does not say it, by the columns of its tables."""
    for table, column in _SINCE_2.items():
        state = table_state(spark, paths.table(table))
        if state is not None and column not in state.schema.names:
            return 1
    return 2


def note_format(spark: SparkSession, paths: LakePaths) -> None:
    """Writes the format down, once, where there is a raw snapshot that does not say it yet, or says an earlier one. Call it
    after `require_known_format`, before anything is written as this format has it."""
    state = table_state(spark, paths.table(_TABLE))
    if state is None or state.properties.get(_PROPERTY) == str(LAKE_FORMAT):
        return
    commit = Commit(paths.writer("format"), LAKE_FORMAT, {"format": LAKE_FORMAT})
    commit_metadata(spark, paths.table(_TABLE), commit, properties={_PROPERTY: str(LAKE_FORMAT)})
