"""The check `no_breach`: changes below an applied resolved TSO that were never seen before. A rebuild applies them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
from pyspark.sql import functions as F

from cdc_pipeline.lake.tables.consistent_cuts import cuts_since_rebuild, read_cuts, rebuilt_tables
from cdc_pipeline.positions import POSITION, Position

if TYPE_CHECKING:
    from cdc_pipeline.lake.lake import Lake


NO_BREACH = "no_breach"


def no_breach_result(lake: Lake, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Fails if new changes arrived at or below an applied resolved TSO. The metadata has the first position per table."""
    rows = []
    if (all_cuts := read_cuts(lake)) is not None:
        cuts = cuts_since_rebuild(all_cuts)
        breaches = cuts.select("cut_id", F.explode("breached").alias("breach"))
        rebuilt = F.broadcast(rebuilt_tables(cuts).alias("rebuilt"))
        same_table = [F.col(f"breach.{name}") == F.col(f"rebuilt.{name}") for name in ("database", "table")]
        breaches = breaches.join(rebuilt, [*same_table, F.col("cut_id") < F.col("rebuilt_id")], "left_anti")
        rows = (
            breaches.groupBy("breach.database", "breach.table")
            .agg(F.sum("breach.changes").alias("changes"), F.min_by("breach", "cut_id").alias("first"))
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
        else f"{total} change(s) arrived after a watermark with a higher TSO. They are in change_log, but in no mirror. "
        f"Run {lake.paths.pipeline}_rebuild to apply them, and find out what broke the order of the stream",
        metadata={
            f"{row['database']}.{row['table']}": f"{row['changes']} change(s), the first at "
            f"{Position(*(row['first'][name] for name in POSITION))}"
            for row in rows
        },
    )
