"""Dead letters that somebody has released, and the bytes that are decoded in place of a record's own.

`<lake>/<pipeline>/dead_letter_releases` has one row per dead letter that was released: the letter as it stood in
`dead_letters`, the run that released it, when, why (`note`), and `replacement`, the message that is decoded at this position
from then on; null where the record's own bytes are. It is only appended to. Whoever decodes goes by it, so that a
rebuild from raw gives the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.lake.delta import table_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.lake.paths import LakePaths

RELEASES = "dead_letter_releases"
POSITION = ("topic", "partition", "offset")


def kept_releases(spark: SparkSession, paths: LakePaths) -> DataFrame | None:
    """The table; None where the lake has none."""
    path = paths.table(RELEASES)
    return None if table_state(spark, path) is None else spark.read.format("delta").load(path)


def with_replacements(spark: SparkSession, paths: LakePaths, raw: DataFrame) -> DataFrame:
    """`raw` with the newest replacement of each record in the place of its `value`."""
    releases = kept_releases(spark, paths)
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
