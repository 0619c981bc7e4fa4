"""A stream that breaks the word of its own watermarks (DESIGN §2, promise 4): loud, until a rebuild has taken it in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
from pyspark.sql import functions as F

from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.mirrors.changes.progress import cuts_since_rebuild, rebuilt_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_pipeline.lake.paths import LakePaths

NO_BREACH = "no_breach"


def no_breach_result(spark: SparkSession, paths: LakePaths, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Fails where changes came at or below an applied resolved TSO that the change log had never seen; the metadata has
    each table with the first one's place and what to do."""
    path = paths.table("consistent_cuts")
    rows = []
    if table_state(spark, path) is not None:
        cuts = cuts_since_rebuild(spark.read.format("delta").load(path))
        found = cuts.select("cut_id", F.explode("breached").alias("found"))
        since = F.broadcast(rebuilt_tables(cuts).alias("anew"))
        same = [F.col(f"found.{name}") == F.col(f"anew.{name}") for name in ("database", "table")]
        found = found.join(since, [*same, F.col("cut_id") < F.col("rebuilt_id")], "left_anti")
        rows = (
            found.groupBy("found.database", "found.table")
            .agg(F.sum("found.changes").alias("changes"), F.min_by("found", "cut_id").alias("first"))
            .orderBy("database", "table")
            .collect()
        )
    total = sum(row["changes"] for row in rows)
    return dg.AssetCheckResult(
        check_name=NO_BREACH,
        asset_key=key,
        passed=not rows,
        description=None
        if not rows
        else f"{total} change(s) came after a watermark that had closed their time; they are in change_log and in no "
        f"mirror. Run {paths.pipeline}_rebuild to take them in, and look for what broke the stream's order",
        metadata={
            f"{row['database']}.{row['table']}": f"{row['changes']} change(s), the first at "
            f"{row['first']['topic']}/{row['first']['partition']}@{row['first']['offset']}"
            for row in rows
        },
    )
