"""The check `no_dead_letters`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from cdc_pipeline.lake.lake import Lake


NO_DEAD_LETTERS = "no_dead_letters"
_EXAMPLES = 5


def dead_letters_result(lake: Lake, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Warns if the lake has dead letters. The metadata has the count and example positions per rule."""
    rules = []
    if (dead_letters := lake.read_if_exists("dead_letters")) is not None:
        position = F.format_string("%s/%d@%d", "topic", "partition", "offset")
        rules = (
            dead_letters.groupBy("rule")
            .agg(
                F.count("*").alias("count"),
                F.slice(F.sort_array(F.collect_list(position)), 1, _EXAMPLES).alias("examples"),
            )
            .orderBy("rule")
            .collect()
        )
    return dg.AssetCheckResult(
        check_name=NO_DEAD_LETTERS,
        asset_key=key,
        passed=not rules,
        severity=dg.AssetCheckSeverity.WARN,
        description=None
        if not rules
        else "; ".join(f"{row['rule']}: {row['count']}, for example {row['examples'][0]}" for row in rules)
        + f". The table dead_letters has reasons and bytes. To decode them again, unchanged or with replacement messages, "
        f"run {lake.paths.pipeline}_release_dead_letters",
        metadata={row["rule"]: f"{row['count']}, for example {', '.join(row['examples'])}" for row in rules},
    )
