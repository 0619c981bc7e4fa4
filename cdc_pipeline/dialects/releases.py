"""Released dead letters, and the messages that replace them.

The append-only table `<lake>/<pipeline>/dead_letter_releases` has one row per release: the columns of the dead letter, the
run that released it, when (`released_at`), why (`note`), and `replacement`, the message to decode at this position from then
on; null to decode the record's own bytes. Decoding always reads it, so a rebuild from raw gives the same result.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.positions import POSITION

RELEASES = "dead_letter_releases"


def read_releases(lake: Lake) -> DataFrame | None:
    """The table `dead_letter_releases`; None if the lake has none."""
    return lake.read_if_exists(RELEASES)


def read_raw_batches(lake: Lake, first: int, last: int) -> DataFrame:
    """The records of `raw_topic_snapshot` of the batches from `first` to `last`, with their replacements."""
    return with_replacements(lake.read_batches("raw_topic_snapshot", first, last), read_releases(lake))


def with_replacements(raw: DataFrame, releases: DataFrame | None) -> DataFrame:
    """`raw` with each `value` replaced by the newest replacement of its record, if any."""
    if releases is None:
        return raw
    newest = (
        releases.where("replacement IS NOT NULL")
        .groupBy(*POSITION)
        .agg(F.max_by("replacement", "released_at").alias("_replacement"))
    )
    return (
        raw.join(F.broadcast(newest), list(POSITION), "left")
        .withColumn("value", F.coalesce("_replacement", "value"))
        .select(*raw.columns)
    )
