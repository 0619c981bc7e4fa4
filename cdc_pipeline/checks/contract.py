"""The contracts, looked at by Pandera after the tables were written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
from pyspark.sql import functions as F

from cdc_pipeline.contracts.tables import TABLES
from cdc_pipeline.contracts.validation import breaches
from cdc_pipeline.resources.few_rows import for_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.contracts.validation import Breach
    from cdc_pipeline.resources.lake import LakePaths

CONTRACT = "contract"
MOST_ROWS = 100_000
"""Each check of Pandera is a Spark job over the rows; of more than these it looks at a part, chosen by position."""
_PARTS = 1_000_000


def contract_result(
    spark: SparkSession, paths: LakePaths, table: str, batches: Sequence[int], count: int, key: dg.AssetKey
) -> dg.AssetCheckResult:
    """Fails, and stops what comes after, where rows of these batches break a rule that decoding should have seen. `count` is
    how many rows they gave the table, or more; the check `balance` holds that against the table itself."""
    if not count:
        return dg.AssetCheckResult(check_name=CONTRACT, asset_key=key, passed=True, metadata={"rows": 0})
    rows = spark.read.format("delta").load(paths.table(table))
    written = rows.where(F.col("batch_id").between(min(batches), max(batches)))
    looked_at = _part(written, count).select(*_columns(table)).coalesce(2).persist()
    # the rules are cheap for a row and dear to prepare: interpreted, those over 44,000 rows took two thirds of the time
    with for_rows(spark, count // 5):
        try:
            checked = looked_at.count()
            found = breaches(looked_at, TABLES[table]) if checked else ()
        finally:
            looked_at.unpersist()
    return dg.AssetCheckResult(
        check_name=CONTRACT,
        asset_key=key,
        passed=not found,
        description=None
        if not found
        else "; ".join(f"{table} has {breach.count} rows that break {breach.rule}{_where(breach)}" for breach in found)
        + ". Decoding should have set these records aside: it is a fault of this code, to be reported with the records' "
        "bytes (raw_topic_snapshot). Nothing that follows was done",
        metadata={
            "rows": checked if count <= MOST_ROWS else count,
            "looked_at": checked,
            **{
                breach.rule: f"{breach.count} rows, expected: {breach.expected}; such as {', '.join(breach.examples)}"
                for breach in found
            },
        },
    )


def _where(breach: Breach) -> str:
    return f", such as {breach.examples[0]}" if breach.examples else ""


def _columns(table: str) -> list[str]:
    return list(TABLES[table].to_schema().columns)


def _part(rows: DataFrame, count: int) -> DataFrame:
    if count <= MOST_ROWS:
        return rows
    place = F.xxhash64("topic", "partition", "offset")
    return rows.where(F.pmod(place, F.lit(_PARTS)) < int(_PARTS * MOST_ROWS / count))
