"""Keeps saying which offsets were given up: what they held is in no table, and no gap of a mirror can name it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_pipeline.lake.paths import LakePaths

NO_LOST_OFFSETS = "no_lost_offsets"


def lost_offsets_result(spark: SparkSession, paths: LakePaths, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Warns where records expired before they were read and the pipeline's file gave them up (`source.resume_at`)."""
    batches = spark.read.format("delta").load(paths.table("batches"))
    rows = (
        batches.select("batch_id", F.explode("lost").alias("found"))
        .select("batch_id", "found.*")
        .orderBy("batch_id", "topic", "partition")
        .collect()
    )
    places = {
        f"{row['topic']}/{row['partition']}": f"{row['first']}–{row['next'] - 1}, given up in batch {row['batch_id']}"
        for row in rows
    }
    return dg.AssetCheckResult(
        check_name=NO_LOST_OFFSETS,
        asset_key=key,
        passed=not rows,
        severity=dg.AssetCheckSeverity.WARN,
        description=None
        if not rows
        else f"{sum(row['next'] - row['first'] for row in rows)} records expired before they were read, the first in "
        f"{next(iter(places))}: {next(iter(places.values()))}. Only a new snapshot of the tables from upstream brings back "
        "what they held; let the topic keep records for longer than the pipeline may stand still (retention.ms)",
        metadata=dict(places),
    )
