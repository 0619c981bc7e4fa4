"""Where Canal begins a new delivery.

Canal's batch numbers begin again after a restart (canal-facts 51). A partition whose numbers go on to grow does not show
that: there the restart is seen by the clock (`ts`), by which the numbers of all partitions are in one order.

Batches that were not acknowledged come once more with new numbers (canal-facts 50). Only `es` steps back then, as it also
does with each transaction that took long (canal-facts 4). So a delivery that only the clock or `es` shows counts where the
changes do come again. A batch of one `es` shows nothing but its content (`batch_repetitions`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, has_trait
from cdc_pipeline.mirrors.changes.copies import PARTITION, image_hash

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column, DataFrame


def with_beginnings(rows: DataFrame, beginnings: DataFrame) -> DataFrame:
    """`rows` with `begun`: how many `new_beginnings` of Canal there were in their topic when they were built."""
    begun = F.size(F.filter(F.coalesce("beginnings", F.array()), lambda at: at <= F.col("ts")))
    found = rows.join(F.broadcast(beginnings), ["topic"], "left")
    return found.withColumn("begun", begun).drop("beginnings")


_RESTART_MS = 1000
"""The least time in which Canal restarts. The messages of one batch are built within milliseconds."""


def new_beginnings(log: DataFrame, statements: DataFrame) -> DataFrame:
    """By topic: `beginnings`, when Canal's batch numbers began again, with a message that came before.

    Over all partitions numbers grow with the clock. Each partition alone shows a restart with the first message that it
    gets, and so one restart would be several. Canal that restarts in its first batch has the same number again, after a
    pause. `log` and `statements` have all rows and statements of the topics.
    """
    change = F.xxhash64("database", "table", "commit_ts", "op", image_hash("before", "after"))
    place = ("topic", "partition", "offset", "ts", "message_id", "dialect")
    rows = log.select(*place, "row", change.alias("change"))
    ddl = statements.select(*place, F.lit(0).alias("row"), F.xxhash64("database", "sql", "commit_ts").alias("change"))
    by_clock = Over.partitionBy("topic").orderBy("ts", "message_id", "partition", "offset", "row")
    one_change = Over.partitionBy(*PARTITION, "change").orderBy("offset", "row")
    number, pause = F.lag("message_id").over(by_clock), F.col("ts") - F.lag("ts").over(by_clock)
    begins = (F.col("message_id") < number) | ((F.col("message_id") == number) & (pause >= _RESTART_MS))
    return (
        rows.unionByName(ddl)
        .where(has_trait(Trait.NUMBERS_BATCHES))
        .withColumns({"begins": begins, "again": F.row_number().over(one_change) > 1})
        .where("begins AND again")
        .groupBy("topic")
        .agg(F.array_distinct(F.collect_list("ts")).alias("beginnings"))
    )


_RETRY_MS = 90
"""Canal waits for 100 ms before it sends a batch again (canal-facts 50)."""
_BATCH = ("topic", "partition", "begun_here", "message_id")
_MOST_CHANGES = 10_000
"""So many changes of a batch are held against another one's: enough to tell, and bounded whatever `id` a producer writes."""
_CONTENT = (
    f"transform(array_sort(collect_list(CASE WHEN nth <= {_MOST_CHANGES} THEN struct(`offset`, `row`, change) END)), "
    "place -> place.change)"
)


def with_repetitions(rows: DataFrame, log: DataFrame, beginnings: DataFrame, with_statements: DataFrame) -> DataFrame:
    """`rows` with `repeats`: how many batches of their partition, up to theirs, are the batch before sent again, and
    `may_repeat`: whether theirs is perhaps. `log` has all rows of the topics, `beginnings` is `new_beginnings`.
    `with_statements` are the messages (topic, ts, message_id) of statements which are carried out: of their batches nothing
    is sure."""
    found = log.where(has_trait(Trait.NUMBERS_BATCHES)).join(
        F.broadcast(rows.select(*PARTITION).distinct()), list(PARTITION), "left_semi"
    )
    # a number is that of another batch after a restart
    batch = ("topic", "begun", "message_id")
    known = with_beginnings(with_statements, beginnings).select(*batch, F.lit(True).alias("is_carried_out"))
    batches = batch_repetitions(with_beginnings(found, beginnings)).join(
        F.broadcast(known.distinct()), list(batch), "left"
    )
    # a batch lies in several partitions: all of it is sent again, or none, whichever part has the key that tells
    one_batch = Over.partitionBy(*batch)
    surely = F.max(F.col("surely") & F.col("is_carried_out").isNull()).over(one_batch)
    batches = batches.withColumn("surely", surely & F.min("repeats").over(one_batch))
    in_turn = Over.partitionBy(*PARTITION).orderBy("first_offset")
    # Spark would plan what follows with all of the above in each place
    numbered = (
        batches.localCheckpoint()
        .select(
            *PARTITION,
            "first_offset",
            "last_offset",
            F.sum(F.col("surely").cast("int")).over(in_turn).alias("repeats"),
            (F.col("repeats") & ~F.col("surely")).alias("may_repeat"),
            "surely",
        )
        # each row is held against them
        .where("surely OR may_repeat")
    )
    spans = numbered.groupBy(*PARTITION).agg(
        F.collect_list(F.struct("first_offset", "last_offset", "repeats", "may_repeat")).alias("spans")
    )
    before = F.filter("spans", lambda span: span["first_offset"] <= F.col("offset"))
    its_own = F.filter(before, lambda span: span["may_repeat"] & (span["last_offset"] >= F.col("offset")))
    return (
        rows.join(F.broadcast(spans), list(PARTITION), "left")
        .withColumns(
            {
                "repeats": F.coalesce(F.array_max(F.transform(before, lambda span: span["repeats"])), F.lit(0)),
                "may_repeat": F.coalesce(F.size(its_own) > 0, F.lit(False)),
            }
        )
        .drop("spans")
    )


def batch_repetitions(log: DataFrame) -> DataFrame:
    """One row per batch of Canal in a partition: `topic`, `partition`, `message_id` (its number), `begun`, `first_offset`,
    `last_offset`, and two booleans.

    `repeats`: its changes are those of the batch before, in order, with the next number and after Canal's wait. A batch
    that is sent again may hold more than it had, or less where it failed in turn. `surely`: these changes cannot have
    happened twice in a row, since a key is put that is there, or taken that is not. Equal rows without a key can.

    `log` has `begun` (`with_beginnings`).
    """
    by_offset = Over.partitionBy(*PARTITION).orderBy("offset", "row")
    back = F.col("message_id") < F.lag("message_id").over(by_offset)
    numbered = log.withColumn("back", F.coalesce(back, F.lit(False))).withColumns(
        {
            "begun_here": F.sum(F.col("back").cast("int")).over(by_offset) + F.col("begun"),
            "change": F.xxhash64("database", "table", "commit_ts", "op", image_hash("before", "after")),
        }
    )
    nth = F.row_number().over(Over.partitionBy(*_BATCH).orderBy("offset", "row"))
    in_turn = Over.partitionBy("topic", "partition", "begun_here").orderBy("first_offset")
    batches = (
        numbered.withColumn("nth", nth)
        .groupBy(*_BATCH)
        .agg(
            F.min("offset").alias("first_offset"),
            F.max("offset").alias("last_offset"),
            F.min("ts").alias("ts"),
            F.min("begun").alias("begun"),
            F.expr(_CONTENT).alias("content"),
        )
    )
    batches = batches.join(_without_repetition(numbered), list(_BATCH), "left").withColumns(
        {
            **{f"{name}_before": F.lag(name).over(in_turn) for name in ("message_id", "ts", "content", "once")},
            "content_after": F.lead("content").over(in_turn),
        }
    )
    again = (F.col("message_id") == F.col("message_id_before") + 1) & (F.col("ts") - F.col("ts_before") >= _RETRY_MS)
    whole = _begins_with("content", "content_before")
    less = again & ~whole & _begins_with("content_before", "content")
    batches = batches.withColumns(
        {
            "whole": F.coalesce(again & whole, F.lit(False)),
            "cut_short": F.coalesce(less & _begins_with("content_after", "content_before"), F.lit(False)),
            # whether it is one the next batch would tell
            "open": F.coalesce(less & F.col("content_after").isNull(), F.lit(False)),
        }
    )
    of_cut = F.lag("cut_short").over(in_turn) & F.lag("once_before").over(in_turn)
    return batches.select(
        *("topic", "partition", "message_id", "begun", "first_offset", "last_offset"),
        (F.col("whole") | F.col("cut_short") | F.col("open")).alias("repeats"),
        (~F.col("open") & (F.coalesce("once_before", F.lit(False)) | F.coalesce(of_cut, F.lit(False)))).alias("surely"),
    )


def _begins_with(longer: str, shorter: str) -> Column:
    return F.expr(f"size({longer}) >= size({shorter}) AND slice({longer}, 1, greatest(size({shorter}), 1)) = {shorter}")


def _without_repetition(rows: DataFrame) -> DataFrame:
    """By batch: `once`, whether the changes of some key cannot have happened twice in a row. A key that an UPDATE moves
    tells nothing."""
    keyed = rows.where(F.size("key_names") > 0).withColumn("image", F.coalesce("after", "before"))
    key = F.expr("transform(key_names, name -> image[name])")
    moved = F.expr(
        "op = 'UPDATE' AND exists(key_names, name -> NOT (coalesce(before[name], after[name]) <=> after[name]))"
    )
    place = F.struct("offset", "row")
    of_keys = (
        keyed.withColumns({"key": key, "moved": moved})
        .groupBy(*_BATCH, "database", "table", "key")
        .agg(
            F.min_by(F.struct("op", "before"), place).alias("first"),
            F.max_by("after", place).alias("left"),
            F.max("moved").alias("moved"),
        )
    )
    other = "exists(map_keys(first.before), name -> NOT (first.before[name] <=> left[name]))"
    once = F.expr(
        f"CASE WHEN left IS NULL THEN first.op <> 'INSERT' ELSE first.op = 'INSERT' OR (first.op = 'UPDATE' AND {other}) END"
    )
    stays = ~F.max("moved").over(Over.partitionBy(*_BATCH, "database", "table"))
    return of_keys.withColumn("once", once & stays).groupBy(*_BATCH).agg(F.max("once").alias("once"))


def without_late_clocks(rows: DataFrame, stream: Collection[str], *, again: Column) -> DataFrame:
    """`rows` with `back` false where only Canal's clock or `es` shows a delivery, and the changes are not those that came
    before.

    Canal sends again all batches that were not acknowledged, in order, each from its beginning. So the delivery begins
    with another batch and with a change that came before; and the change before the step comes again in a later batch,
    or (as yet) no new one comes. `again`: the batch numbers of this partition begin again, or its clock steps back, as
    where a message was copied. `stream` are the columns of a table's stream in a partition.
    """
    by_offset = Over.partitionBy(*stream).orderBy("offset", "row")
    one_run = Over.partitionBy(*stream, "run")
    late = has_trait(Trait.NUMBERS_BATCHES) & F.col("back") & ~F.coalesce(again, F.lit(False))
    batch = F.struct("message_id", "begun")
    found = (
        rows.withColumns({"late": late, "change": F.xxhash64("commit_ts", "op", image_hash("before", "after"))})
        .withColumns({"run": F.sum(F.col("back").cast("int")).over(by_offset), "batch": batch})
        .withColumns({"change_before": F.lag("change").over(by_offset), "batch_before": F.lag("batch").over(by_offset)})
        .withColumn("newly", F.col("run") == F.min("run").over(Over.partitionBy(*stream, "change")))
        .withColumns(
            {
                name: F.first(name).over(one_run.orderBy("offset", "row"))
                for name in ("change_before", "batch_before", "batch", "newly")
            }
            | {"this_batch": F.col("batch"), "this_newly": F.col("newly")}
        )
        .withColumns(
            {
                "resent": F.max(
                    (F.col("change") == F.col("change_before")) & (F.col("this_batch") != F.col("batch_before"))
                ).over(one_run),
                "some_new": F.max("this_newly").over(one_run),
            }
        )
    )
    begins = (F.col("batch") != F.col("batch_before")) & ~F.col("newly") & (F.col("resent") | ~F.col("some_new"))
    return found.withColumn("back", F.col("back") & (~F.col("late") | begins)).drop(
        "late",
        "change",
        "run",
        "batch",
        "change_before",
        "batch_before",
        "newly",
        "this_batch",
        "this_newly",
        "resent",
        "some_new",
    )
