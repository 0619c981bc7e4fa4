"""Where Canal starts a new delivery: after a restart, or when it retries batches.

- Restart: batch numbers (`message_id`) start at 1 again (canal-facts 3, 51). Within one partition the numbers may still
  increase. Over all partitions of a topic, batch numbers grow with Canal's clock (`ts`), so a lower number is a restart.
- Retry: Canal resends batches that were not acknowledged, with new numbers (canal-facts 50). `es` steps back then, but
  it also does after a long transaction (canal-facts 4). `with_confirmed_starts` compares the changes.
- Without batch numbers, a stretch that is resent with a new clock shows as `es` that steps back (`unnumbered_starts`).
- Retry of a batch whose rows share one `es`: only the content shows it (`batch_retries`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, has_trait
from cdc_pipeline.mirrors.deliveries.copies import PARTITION
from cdc_pipeline.mirrors.deliveries.kept_clocks import change_hash, sent_records, with_kept_clocks

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column, DataFrame, WindowSpec


def with_restart_count(rows: DataFrame, restarts: DataFrame) -> DataFrame:
    """Adds `canal_restarts`: the number of `restart_times` of the topic at or before the row's `ts`."""
    count = F.size(F.filter(F.coalesce("restart_times", F.array()), lambda at: at <= F.col("ts")))
    joined = rows.join(F.broadcast(restarts), ["topic"], "left")
    return joined.withColumn("canal_restarts", count).drop("restart_times")


_RESTART_MS = 1000
"""A restart of Canal takes at least this long. Messages of one batch are built within milliseconds."""


def restart_times(log: DataFrame, statements: DataFrame) -> DataFrame:
    """One row per topic: `topic`, and `restart_times`, the `ts` (ms) at which Canal restarted.

    A message marks a restart if its batch number is lower than that of the message before it by clock, and one of its
    changes came before in the same partition. The same number after `_RESTART_MS` counts as lower: Canal restarted in its
    first batch. The whole topic is compared, because each partition would date one restart differently. A restart that
    keeps the clock has no time: `kept_clocks` finds its copies.

    `log` and `statements` hold all row changes and statements of the topics.
    """
    rows = with_kept_clocks(sent_records(log, statements).where(has_trait(Trait.NUMBERS_BATCHES)))
    by_clock = Over.partitionBy("topic").orderBy("ts", "message_id", "partition", "offset", "row")
    one_change = Over.partitionBy(*PARTITION, "change").orderBy("offset", "row")
    previous, pause = F.lag("message_id").over(by_clock), F.col("ts") - F.lag("ts").over(by_clock)
    restarts = (F.col("message_id") < previous) | ((F.col("message_id") == previous) & (pause >= _RESTART_MS))
    restarts &= F.col("kept_clocks") == F.lag("kept_clocks").over(by_clock)
    return (
        rows.where("NOT is_kept_copy")
        .withColumns({"restarts": restarts, "is_repeated": F.row_number().over(one_change) > 1})
        .where("restarts AND is_repeated")
        .groupBy("topic")
        .agg(F.array_distinct(F.collect_list("ts")).alias("restart_times"))
    )


_RETRY_MS = 90
"""Canal waits 100 ms before it resends a batch (canal-facts 50)."""
_BATCH = ("topic", "partition", "numbering", "message_id")
_MOST_CHANGES = 10_000
"""Only this many changes of a batch are compared. This bounds memory, whatever `id` a producer writes."""
_CONTENT = (
    f"transform(array_sort(collect_list(CASE WHEN nth <= {_MOST_CHANGES} THEN struct(`offset`, `row`, change) END)), "
    "item -> item.change)"
)


def with_retry_count(rows: DataFrame, log: DataFrame, restarts: DataFrame, ddl_messages: DataFrame) -> DataFrame:
    """Adds `retries` and `may_be_retry`.

    `retries`: how many batches of the partition, up to the row's own, certainly are retries of the batch before them.
    `may_be_retry`: whether the row's own batch is a possible retry.

    `log` holds all row changes of the topics, `restarts` is `restart_times`. `ddl_messages` (topic, ts, message_id) are the
    messages of applied statements: a retry of their batches is never certain.
    """
    numbered = log.where(has_trait(Trait.NUMBERS_BATCHES) & F.col("message_id").isNotNull()).join(
        F.broadcast(rows.select(*PARTITION).distinct()), list(PARTITION), "left_semi"
    )
    # after a restart a number belongs to another batch
    batch = ("topic", "canal_restarts", "message_id")
    with_ddl = with_restart_count(ddl_messages, restarts).select(*batch, F.lit(True).alias("has_ddl"))
    batches = batch_retries(with_restart_count(numbered, restarts)).join(
        F.broadcast(with_ddl.distinct()), list(batch), "left"
    )
    # Canal resends a batch to all of its partitions or to none: proof in one partition is proof for all
    one_batch = Over.partitionBy(*batch)
    is_certain = F.max(F.col("is_certain") & F.col("has_ddl").isNull()).over(one_batch)
    batches = batches.withColumn("is_certain", is_certain & F.min("is_possible").over(one_batch))
    in_order = Over.partitionBy(*PARTITION).orderBy("first_offset")
    # without a checkpoint Spark would repeat the plan above in each use below
    retries = (
        batches.localCheckpoint()
        .select(
            *PARTITION,
            "first_offset",
            "last_offset",
            F.sum(F.col("is_certain").cast("int")).over(in_order).alias("retries"),
            (F.col("is_possible") & ~F.col("is_certain")).alias("may_be_retry"),
            "is_certain",
        )
        # each row is compared with all of them
        .where("is_certain OR may_be_retry")
    )
    ranges = retries.groupBy(*PARTITION).agg(
        F.collect_list(F.struct("first_offset", "last_offset", "retries", "may_be_retry")).alias("ranges")
    )
    so_far = F.filter("ranges", lambda batch: batch["first_offset"] <= F.col("offset"))
    its_own = F.filter(so_far, lambda batch: batch["may_be_retry"] & (batch["last_offset"] >= F.col("offset")))
    return (
        rows.join(F.broadcast(ranges), list(PARTITION), "left")
        .withColumns(
            {
                "retries": F.coalesce(F.array_max(F.transform(so_far, lambda batch: batch["retries"])), F.lit(0)),
                "may_be_retry": F.coalesce(F.size(its_own) > 0, F.lit(False)),
            }
        )
        .drop("ranges")
    )


def batch_retries(log: DataFrame) -> DataFrame:
    """One row per Canal batch and partition: is it a retry of the batch before it?

    Columns: `topic`, `partition`, `message_id` (the batch number), `canal_restarts`, `first_offset`, `last_offset`, and

    - `is_possible`: the batch has the next number, comes after Canal's wait, and starts with all changes of the batch
      before it, in order. It may hold more. It may also hold fewer, if it failed in turn.
    - `is_certain`: its changes cannot happen twice in a row, because a key would be inserted that exists, or deleted that
      does not. Equal rows without a key can.

    `log` has `canal_restarts`.
    """
    in_order = Over.partitionBy("topic", "partition", "numbering").orderBy("first_offset")
    batches = _batches_in_order(log, in_order)
    in_time = (F.col("message_id") == F.col("previous_message_id") + 1) & (
        F.col("ts") - F.col("previous_ts") >= _RETRY_MS
    )
    repeats_all = _starts_with("content", "previous_content")
    repeats_part = in_time & ~repeats_all & _starts_with("previous_content", "content")
    batches = batches.withColumns(
        {
            "is_full": F.coalesce(in_time & repeats_all, F.lit(False)),
            "is_partial": F.coalesce(repeats_part & _starts_with("next_content", "previous_content"), F.lit(False)),
            # only the next batch, which has not arrived, can decide
            "is_undecided": F.coalesce(repeats_part & F.col("next_content").isNull(), F.lit(False)),
        }
    )
    completes_partial = F.lag("is_partial").over(in_order) & F.lag("previous_is_unrepeatable").over(in_order)
    is_proven = F.coalesce("previous_is_unrepeatable", F.lit(False)) | F.coalesce(completes_partial, F.lit(False))
    return batches.select(
        *("topic", "partition", "message_id", "canal_restarts", "first_offset", "last_offset"),
        (F.col("is_full") | F.col("is_partial") | F.col("is_undecided")).alias("is_possible"),
        (~F.col("is_undecided") & is_proven).alias("is_certain"),
    )


def _batches_in_order(log: DataFrame, in_order: WindowSpec) -> DataFrame:
    """One row per Canal batch and partition: its first and last offset, `content`, and columns of the batches around it."""
    by_offset = Over.partitionBy(*PARTITION).orderBy("offset", "row")
    decreases = F.col("message_id") < F.lag("message_id").over(by_offset)
    numbered = log.withColumn("decreases", F.coalesce(decreases, F.lit(False))).withColumns(
        {
            "numbering": F.sum(F.col("decreases").cast("int")).over(by_offset) + F.col("canal_restarts"),
            "change": change_hash(),
        }
    )
    nth = F.row_number().over(Over.partitionBy(*_BATCH).orderBy("offset", "row"))
    batches = (
        numbered.withColumn("nth", nth)
        .groupBy(*_BATCH)
        .agg(
            F.min("offset").alias("first_offset"),
            F.max("offset").alias("last_offset"),
            F.min("ts").alias("ts"),
            F.min("canal_restarts").alias("canal_restarts"),
            F.expr(_CONTENT).alias("content"),
        )
    )
    return batches.join(_unrepeatable_batches(numbered), list(_BATCH), "left").withColumns(
        {
            **{
                f"previous_{name}": F.lag(name).over(in_order)
                for name in ("message_id", "ts", "content", "is_unrepeatable")
            },
            "next_content": F.lead("content").over(in_order),
        }
    )


def _starts_with(longer: str, shorter: str) -> Column:
    return F.expr(f"size({longer}) >= size({shorter}) AND slice({longer}, 1, greatest(size({shorter}), 1)) = {shorter}")


def _unrepeatable_batches(rows: DataFrame) -> DataFrame:
    """By batch, `is_unrepeatable`: whether its changes of some key cannot happen twice in a row.

    Tables in which the batch changes a key by UPDATE are ignored.
    """
    keyed = rows.where(F.size("key_names") > 0).withColumn("image", F.coalesce("after", "before"))
    key = F.expr("transform(key_names, name -> image[name])")
    changes_key = F.expr(
        "op = 'UPDATE' AND exists(key_names, name -> NOT (coalesce(before[name], after[name]) <=> after[name]))"
    )
    position = F.struct("offset", "row")
    keys = (
        keyed.withColumns({"key": key, "changes_key": changes_key})
        .groupBy(*_BATCH, "database", "table", "key")
        .agg(
            F.min_by(F.struct("op", "before"), position).alias("first"),
            F.max_by("after", position).alias("last_image"),
            F.max("changes_key").alias("changes_key"),
        )
    )
    differs = "exists(map_keys(first.before), name -> NOT (first.before[name] <=> last_image[name]))"
    is_unrepeatable = F.expr(
        "CASE WHEN last_image IS NULL THEN first.op <> 'INSERT' "
        f"ELSE first.op = 'INSERT' OR (first.op = 'UPDATE' AND {differs}) END"
    )
    keys_stay = ~F.max("changes_key").over(Over.partitionBy(*_BATCH, "database", "table"))
    return (
        keys.withColumn("is_unrepeatable", is_unrepeatable & keys_stay)
        .groupBy(*_BATCH)
        .agg(F.max("is_unrepeatable").alias("is_unrepeatable"))
    )


def unnumbered_starts(records: DataFrame) -> DataFrame:
    """Where services without batch numbers begin to resend with a new clock: `topic`, `partition`, `offset`.

    `es` steps back there, and the content confirms it (`with_confirmed_starts`). `records`: those of
    `kept_clocks.with_kept_clocks`.
    """
    by_offset = Over.partitionBy(*PARTITION).orderBy("offset", "row")
    steps_back = F.col("message_id").isNull() & (F.col("commit_ts") < F.lag("commit_ts").over(by_offset))
    starts = {"starts_delivery": F.coalesce(steps_back, F.lit(False)), "canal_restarts": F.lit(0)}
    found = with_confirmed_starts(
        records.where("NOT is_kept_copy").withColumns(starts), PARTITION, is_certain=F.lit(False), is_retry=F.lit(False)
    )
    return found.where("starts_delivery").select(*PARTITION, "offset")


def with_resend_count(rows: DataFrame, starts: DataFrame) -> DataFrame:
    """Adds `resends`: how many of the `unnumbered_starts` of its partition lie at or before a row."""
    offsets = starts.groupBy(*PARTITION).agg(F.collect_list("offset").alias("starts"))
    count = F.size(F.filter(F.coalesce("starts", F.array()), lambda offset: offset <= F.col("offset")))
    return rows.join(F.broadcast(offsets), list(PARTITION), "left").withColumn("resends", count).drop("starts")


def with_confirmed_starts(
    rows: DataFrame, stream: Collection[str], *, is_certain: Column, is_retry: Column
) -> DataFrame:
    """Clears `starts_delivery` of Canal rows where the content does not confirm a new delivery. Adds `may_be_original`.

    Canal resends all unacknowledged batches in order, each from its start. So a delivery is confirmed if it starts with
    another batch and with a change that came before, and either the last change before it comes again in another batch,
    or none of its changes is new. The second proves little: transactions that began earlier may repeat changes, too. Its
    rows are `may_be_original`. Messages without a batch number count as batches of their own.

    `rows` has `change`, equal in all copies of a change. `stream`: the columns that identify the stream of a table in a
    partition. `is_certain`: the partition's batch numbers restart or its clock steps back; such starts need no confirmation.
    `is_retry`: the row begins a certain retry (`with_retry_count`).
    """
    by_offset = Over.partitionBy(*stream).orderBy("offset", "row")
    one_delivery = Over.partitionBy(*stream, "delivery")
    is_open = has_trait(Trait.NUMBERS_BATCHES) & F.col("starts_delivery") & ~F.coalesce(is_certain, F.lit(False))
    batch = F.struct(
        "message_id", "canal_restarts", F.when(F.col("message_id").isNull(), F.col("offset")).alias("offset")
    )
    found = (
        rows.withColumns({"is_open": is_open, "is_retry": F.coalesce(is_retry, F.lit(False))})
        .withColumns({"delivery": F.sum(F.col("starts_delivery").cast("int")).over(by_offset), "batch": batch})
        .withColumns(
            {"previous_change": F.lag("change").over(by_offset), "previous_batch": F.lag("batch").over(by_offset)}
        )
        .withColumn("is_new", F.col("delivery") == F.min("delivery").over(Over.partitionBy(*stream, "change")))
        # of the first row of the delivery; `row_batch` and `row_is_new` are of the row itself
        .withColumns(
            {
                name: F.first(name).over(one_delivery.orderBy("offset", "row"))
                for name in ("previous_change", "previous_batch", "batch", "is_new", "is_open", "is_retry")
            }
            | {"row_batch": F.col("batch"), "row_is_new": F.col("is_new")}
        )
        .withColumns(
            {
                "resends_previous": F.max(
                    (F.col("change") == F.col("previous_change")) & (F.col("row_batch") != F.col("previous_batch"))
                ).over(one_delivery),
                "has_new": F.max("row_is_new").over(one_delivery),
            }
        )
    )
    is_confirmed = (
        (F.col("batch") != F.col("previous_batch")) & ~F.col("is_new") & (F.col("resends_previous") | ~F.col("has_new"))
    )
    may_be_original = F.col("is_open") & ~F.col("is_retry") & is_confirmed & ~F.col("resends_previous")
    decided = {
        "starts_delivery": F.col("starts_delivery") & (~F.col("is_open") | is_confirmed),
        "may_be_original": F.coalesce(may_be_original, F.lit(False)),
    }
    return found.withColumns(decided).select(*rows.columns, "may_be_original")
