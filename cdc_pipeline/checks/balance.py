"""Nothing is lost, nothing is invented (DESIGN §2, promise 1): records in = what they became, for every batch, and row
changes = what the cuts made of them."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.dialects import unified
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.mirrors.changes.dead_letters import VALUE_HAS_TYPE
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.spark.few_rows import for_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, SparkSession

    from cdc_pipeline.dialects.decoded_tables import DecodedBatch
    from cdc_pipeline.lake.paths import LakePaths

BALANCE = "balance"
_SHOWN = 5
_WHAT_TO_DO = (
    "Nothing that follows was done. Run {pipeline}_rebuild, which decodes every batch again from raw_topic_snapshot and "
    "puts right what differs; if the numbers then differ still, it is a fault of this code: report these batches"
)


def balance_result(
    spark: SparkSession, paths: LakePaths, batches: Sequence[DecodedBatch], key: dg.AssetKey
) -> dg.AssetCheckResult:
    """Fails, and stops what comes after, where a batch's records and what became of them differ in number.

    What was counted while decoding is held against the records of the raw snapshot, and against the rows that stand
    in each table now.
    """
    wrong = [
        f"batch {batch.batch_id} ({_places(batch)}): {_sum(batch)}" for batch in batches if not batch.counts.balanced
    ]
    wrong += _differences(spark, paths, batches)
    return dg.AssetCheckResult(
        check_name=BALANCE,
        asset_key=key,
        passed=not wrong,
        description=f"{'; '.join(wrong)}. {_WHAT_TO_DO.format(pipeline=paths.pipeline)}" if wrong else None,
        metadata={f"batch {batch.batch_id}": _sum(batch) for batch in batches},
    )


def _places(batch: DecodedBatch) -> str:
    """Where the batch's records are."""
    spans = [f"{span.topic}/{span.partition}@{span.first}–{span.last}" for span in batch.ranges]
    more = [f"and {len(spans) - _SHOWN} more"] if len(spans) > _SHOWN else []
    return ", ".join(spans[:_SHOWN] + more) or "no records"


def _sum(batch: DecodedBatch) -> str:
    parts = " + ".join(f"{count} {kind}" for kind, count in batch.counts.by_kind.items() if count)
    return f"{batch.counts.records} records = {parts or 0}, with {batch.counts.row_changes} row changes"


def _differences(spark: SparkSession, paths: LakePaths, batches: Sequence[DecodedBatch]) -> list[str]:
    """Where a table has other than the counted rows of a batch."""
    if not batches:
        return []
    decoded_only = F.col("rule") != VALUE_HAS_TYPE
    counted: dict[str, tuple[Column, dict[int, int]]] = {
        "change_log": (F.lit(True), {batch.batch_id: batch.counts.row_changes for batch in batches}),
        "watermarks": (F.lit(True), _of_kind(batches, unified.WATERMARK)),
        "ddl_history": (F.col("kind").isin(*unified.DDL_STATEMENTS), _of_kind(batches, *unified.DDL_STATEMENTS)),
        "dead_letters": (decoded_only, _of_kind(batches, unified.DEAD)),
    }
    ids = [batch.batch_id for batch in batches]
    with for_rows(spark, sum(sum(wanted.values()) for _, wanted in counted.values())):
        new = [
            spark.read.format("delta")
            .load(paths.table(table))
            .where(F.col("batch_id").between(min(ids), max(ids)) & condition)
            .select(F.lit(table).alias("table"), "batch_id")
            for table, (condition, _) in counted.items()
        ]
        counts = reduce(DataFrame.unionAll, new).groupBy("table", "batch_id").count().collect()
    found = {(row["table"], row["batch_id"]): row["count"] for row in counts}
    places = {batch.batch_id: _places(batch) for batch in batches}
    return [
        f"batch {batch_id} ({places[batch_id]}): {table} has {there} rows, {count} were counted"
        for table, (_, wanted) in counted.items()
        for batch_id, count in wanted.items()
        if (there := found.get((table, batch_id), 0)) != count
    ]


def _of_kind(batches: Sequence[DecodedBatch], *kinds: str) -> dict[int, int]:
    return {batch.batch_id: sum(batch.counts.by_kind[kind] for kind in kinds) for batch in batches}


def cut_balance_result(spark: SparkSession, paths: LakePaths, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Fails where a decoded row change is in no cut, is late in none and waits for none, or is in two."""
    if table_state(spark, paths.table("consistent_cuts")) is None:
        return dg.AssetCheckResult(check_name=BALANCE, asset_key=key, passed=True, metadata={"cuts": 0})
    found = lake_balance(spark, paths)
    words = (
        f"{found.decoded} row changes = {found.taken} taken in + {found.late} late + {found.filtered} filtered + "
        f"{found.pending} pending"
    )
    return dg.AssetCheckResult(
        check_name=BALANCE,
        asset_key=key,
        passed=found.balanced,
        description=None
        if found.balanced
        else f"not true, over all cuts since the newest rebuild: {words}. {_WHAT_TO_DO.format(pipeline=paths.pipeline)}",
        metadata={"all cuts": words},
    )
