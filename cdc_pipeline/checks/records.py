"""The checks of records: `balance` (none is lost or counted twice) and `no_dead_letters`.

Per batch: records = row changes + DDL + watermarks + heartbeats + dead letters. Over all cuts: row changes = applied by
a cut + late + filtered + pending.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import dagster as dg
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from cdc_pipeline.checks.results import check_result
from cdc_pipeline.dialects import unified
from cdc_pipeline.dialects.decoded_tables import DecodedBatch
from cdc_pipeline.lake.control_tables import is_empty
from cdc_pipeline.lake.delta import Commit, appended_rows
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.recent_answers import RecentAnswers
from cdc_pipeline.mirrors.changes.dead_letters import VALUE_HAS_TYPE
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.spark.small_frames import small_query

BALANCE = "balance"
_SHOWN = 5
_ADVICE = (
    "Downstream assets were not updated. Run {pipeline}_rebuild, which decodes every batch again and replaces the tables "
    "that differ. If the numbers still differ, it is a bug in cdc_pipeline: report these batches"
)


def balance_result(lake: Lake, batches: Sequence[DecodedBatch], key: dg.AssetKey) -> dg.AssetCheckResult:
    """Fails if the decoded rows of a batch do not add up to its records. Blocks downstream assets.

    Compares the counts of the decoder with the records in the raw snapshot, and with the rows in each table.
    """
    errors = [
        f"batch {batch.batch_id} ({_offsets(batch)}): {_equation(batch)}"
        for batch in batches
        if not batch.counts.is_balanced
    ]
    errors += _differences(lake, batches)
    equations = {f"batch {batch.batch_id}": _equation(batch) for batch in batches}
    return check_result(BALANCE, key, errors, _ADVICE.format(pipeline=lake.paths.pipeline), equations, is_error=True)


def _offsets(batch: DecodedBatch) -> str:
    """The offset ranges of the batch, shortened."""
    spans = [f"{span.topic}/{span.partition}@{span.first}–{span.last}" for span in batch.ranges]
    more = [f"and {len(spans) - _SHOWN} more"] if len(spans) > _SHOWN else []
    return ", ".join(spans[:_SHOWN] + more) or "no records"


def _equation(batch: DecodedBatch) -> str:
    parts = " + ".join(f"{count} {kind}" for kind, count in batch.counts.by_kind.items() if count)
    return f"{batch.counts.records} records = {parts or 0}, with {batch.counts.row_changes} row changes"


def _differences(lake: Lake, batches: Sequence[DecodedBatch]) -> list[str]:
    """One text per batch and table whose number of rows differs from the count of the decoder."""
    if not batches:
        return []
    by_decoder = F.col("rule") != VALUE_HAS_TYPE
    counted: dict[str, tuple[Column, dict[int, int]]] = {
        "change_log": (F.lit(True), {batch.batch_id: batch.counts.row_changes for batch in batches}),
        "watermarks": (F.lit(True), _count_by_batch(batches, unified.WATERMARK)),
        "ddl_history": (F.col("kind").isin(*unified.DDL_STATEMENTS), _count_by_batch(batches, *unified.DDL_STATEMENTS)),
        "dead_letters": (by_decoder, _count_by_batch(batches, unified.DEAD)),
    }
    suspects = {table: check for table, check in counted.items() if not _is_in_log(lake, table, check[1], batches)}
    if not suspects:
        return []
    ids = [batch.batch_id for batch in batches]
    with small_query(lake.spark, sum(sum(expected.values()) for _, expected in suspects.values())):
        new = [
            lake.read(table)
            .where(F.col("batch_id").between(min(ids), max(ids)) & condition)
            .select(F.lit(table).alias("table"), "batch_id")
            for table, (condition, _) in suspects.items()
        ]
        counts = reduce(DataFrame.unionAll, new).groupBy("table", "batch_id").count().collect()
    actual = {(row["table"], row["batch_id"]): row["count"] for row in counts}
    offsets = {batch.batch_id: _offsets(batch) for batch in batches}
    return [
        f"batch {batch_id} ({offsets[batch_id]}): {table} has {rows} rows, but the decoder counted {count}"
        for table, (_, expected) in suspects.items()
        for batch_id, count in expected.items()
        if (rows := actual.get((table, batch_id), 0)) != count
    ]


def _is_in_log(lake: Lake, table: str, expected: Mapping[int, int], batches: Sequence[DecodedBatch]) -> bool:
    """Whether the statistics in the table's log show exactly these rows: batch → count. If not, a query has to count."""
    if len(batches) > 1:
        return False  # only the newest commits are looked for
    (batch,) = batches
    if table == "ddl_history" and any(batch.counts.by_kind[kind] for kind in (unified.STATEMENT, unified.XA)):
        return False  # their rows are in the same commit
    commit = Commit(lake.paths.app_id(table), batch.batch_id, {})
    return appended_rows(lake.spark, lake.paths.table(table), commit) == expected[batch.batch_id]


def _count_by_batch(batches: Sequence[DecodedBatch], *kinds: str) -> dict[int, int]:
    return {batch.batch_id: sum(batch.counts.by_kind[kind] for kind in kinds) for batch in batches}


def cut_balance_result(lake: Lake, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Fails if a decoded row change is neither applied, late, filtered nor pending, or is counted twice."""
    if not lake.exists("consistent_cuts"):
        return check_result(BALANCE, key, [], "", {"cuts": 0}, is_error=True)
    balance = lake_balance(lake)
    equation = (
        f"{balance.decoded} row changes = {balance.in_cuts} in cuts + {balance.late} late + {balance.filtered} filtered + "
        f"{balance.pending} pending"
    )
    problems = [] if balance.is_balanced else [f"does not add up over all cuts since the newest rebuild: {equation}"]
    advice = _ADVICE.format(pipeline=lake.paths.pipeline)
    return check_result(BALANCE, key, problems, advice, {"all_cuts": equation}, is_error=True)


NO_DEAD_LETTERS = "no_dead_letters"
_DEAD_LETTERS = "dead_letters"
_EXAMPLES, _SHOWN_TABLES = 5, 3


def dead_letters_result(lake: Lake, recent: RecentAnswers, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Warns if the lake has dead letters. The metadata has the count, the first tables and example positions
    per rule."""

    def count_by_rule() -> list[Row]:
        if is_empty(lake, _DEAD_LETTERS):
            return []
        lake.start_session()
        position = F.format_string("%s/%d@%d", "topic", "partition", "offset")
        examples = F.slice(F.sort_array(F.collect_list(position)), 1, _EXAMPLES).alias("examples")
        name = F.when(F.col("table").isNull(), "unknown tables").otherwise(F.concat_ws(".", "database", "table"))
        tables = F.slice(F.sort_array(F.collect_set(name)), 1, _SHOWN_TABLES).alias("tables")
        by_rule = lake.read(_DEAD_LETTERS).groupBy("rule").agg(F.count("*").alias("count"), tables, examples)
        return by_rule.orderBy("rule").collect()

    rules = recent.cached_query("dead letters by rule", lake.state(_DEAD_LETTERS), count_by_rule)
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
