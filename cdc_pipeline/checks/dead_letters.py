"""The check `no_dead_letters`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.checks.markdown import check_result
from cdc_pipeline.lake.control_tables import is_empty

if TYPE_CHECKING:
    import dagster as dg
    from pyspark.sql import Row

    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.lake.recent_answers import RecentAnswers


NO_DEAD_LETTERS = "no_dead_letters"
_TABLE = "dead_letters"
_EXAMPLES, _TABLES = 5, 3


def dead_letters_result(lake: Lake, recent: RecentAnswers, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Warns if the lake has dead letters. The metadata has the count, the first tables and example positions
    per rule."""

    def count_by_rule() -> list[Row]:
        if is_empty(lake, _TABLE):
            return []
        position = F.format_string("%s/%d@%d", "topic", "partition", "offset")
        examples = F.slice(F.sort_array(F.collect_list(position)), 1, _EXAMPLES).alias("examples")
        name = F.when(F.col("table").isNull(), "unknown tables").otherwise(F.concat_ws(".", "database", "table"))
        tables = F.slice(F.sort_array(F.collect_set(name)), 1, _TABLES).alias("tables")
        by_rule = lake.read(_TABLE).groupBy("rule").agg(F.count("*").alias("count"), tables, examples)
        return by_rule.orderBy("rule").collect()

    rules = recent.cached_query("dead letters by rule", lake.state(_TABLE), count_by_rule)
    return check_result(
        NO_DEAD_LETTERS,
        key,
        [f"{row['rule']}: {row['count']}, for example {row['examples'][0]}" for row in rules],
        "The table dead_letters has reasons and bytes (cdc-pipeline letters). To decode them again, unchanged or with "
        f"replacement messages, run {lake.paths.pipeline}_release_dead_letters. A topic without Canal-JSON: remove it from "
        "source.topics and list it in source.ended",
        {
            row["rule"]: f"{row['count']} of {', '.join(row['tables'])}, for example {', '.join(row['examples'])}"
            for row in rules
        },
    )
