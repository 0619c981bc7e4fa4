"""Changes that a stream brings again: at least once in, exactly once out (DESIGN §2, promise 4).

A keyed table whose changes have exact TSOs needs none of this: the same change twice is one change of its key. Two
others do. Rows of a table without a key have no identity, so that a change sent twice is told from two equal ones only
by where it stands; and where order is by `es` alone, an old change would undo a newer one.

An encoder sends the changes of a table in the order of their commits. A delivery ends, and another begins, where that
order steps back (a restart from a checkpoint, a retry; ticdc-facts §10), or where Canal's batch numbers begin again
(canal-facts 51). Equal changes inside one delivery are two; the n-th of them in a later delivery is the n-th of the first
delivery, sent again. What comes after a watermark that has closed its time is sent again, each copy by itself; so is a
change of DataWorks that has the number (`sequenceId`) of another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from cdc_pipeline.dialects.dataworks import NAME as DATAWORKS
from cdc_pipeline.mirrors.shards import source_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from cdc_pipeline.mirrors.window import Window

POSITION = ("topic", "partition", "offset", "row")
_CHANGE = ("database", "table", "commit_ts", "op", "images")
_PARTITION = ("topic", "partition")


def repeated_positions(changes: DataFrame, log: DataFrame, watermarks: DataFrame, window: Window) -> DataFrame | None:
    """The positions (`POSITION`) of changes that were delivered before; None where there are none.

    `changes` are those of the cut, with `fresh` false for changes that are not to be let in; `log` and
    `watermarks` are the whole tables.
    """
    keyless = F.coalesce(F.size("key_names"), F.lit(0)) <= 0
    suspects = changes if window.resolved_tso is None else changes.where(keyless)
    copies = suspects.select(
        *POSITION,
        "batch_id",
        "fresh",
        "dialect",
        *source_columns(log),
        *_CHANGE[:-1],
        _hash("before", "after").alias("images"),
    )
    repeated = copies.groupBy(*_CHANGE).agg(F.count("*").alias("copies")).where("copies > 1")
    if repeated.isEmpty():
        return None
    copies = copies.join(repeated, list(_CHANGE), "left_semi")
    return _later_copies(copies, log, watermarks, window).where("fresh").select(*POSITION)


def _later_copies(copies: DataFrame, log: DataFrame, watermarks: DataFrame, window: Window) -> DataFrame:
    """The copies that are not the first of their ordinal."""
    delivered = _with_delivery(copies, log, watermarks, window)
    in_order = [F.col(name) for name in ("closed", "batch_id", *POSITION)]
    within = Over.partitionBy(*_CHANGE, *_PARTITION, "delivery").orderBy("offset", "row")
    among = Over.partitionBy(*_CHANGE, "ordinal").orderBy(*in_order)
    numbered = delivered.withColumn("ordinal", F.row_number().over(within))
    return numbered.withColumn("nth", F.row_number().over(among)).where("nth > 1")


def _with_delivery(copies: DataFrame, log: DataFrame, watermarks: DataFrame, window: Window) -> DataFrame:
    """`copies` with `closed`, and `delivery`, which numbers the deliveries of a change in one partition."""
    oldest = copies.agg(F.min("batch_id")).first()
    assert oldest is not None
    batches = F.col("batch_id").between(oldest[0], window.last_batch)
    # each of the tables that are merged into one mirror is sent in an order of its own
    table = ("database", "table", *source_columns(log))
    streams = F.broadcast(copies.select(*_PARTITION, *table).distinct())
    by_offset = Over.partitionBy(*_PARTITION, *table).orderBy("offset", "row")
    steps_back = (F.col("commit_ts") < F.lag("commit_ts").over(by_offset)) | (
        F.col("message_id") < F.lag("message_id").over(by_offset)
    )
    breaks = (
        log.where(batches)
        .join(streams, [*_PARTITION, *table], "left_semi")
        .select(*POSITION, *table, F.coalesce(steps_back, F.lit(False)).cast("int").alias("steps_back"))
        .select(*POSITION, F.sum("steps_back").over(by_offset).alias("breaks"))
    )
    one_change = Over.partitionBy(*_CHANGE, *_PARTITION).orderBy("offset", "row")
    placed = copies.join(breaks, list(POSITION)).withColumns(
        {"offset_before": F.lag("offset").over(one_change), "breaks_before": F.lag("breaks").over(one_change)}
    )
    closed = _closed(placed, watermarks.where(F.col("batch_id") <= window.last_batch))
    by_itself = F.col("closed") | (F.col("dialect") == DATAWORKS)
    begins = F.col("offset_before").isNotNull() & ((F.col("breaks") != F.col("breaks_before")) | by_itself)
    return (
        placed.join(closed, list(POSITION), "left")
        .withColumn("closed", F.coalesce("closed", F.lit(False)))
        .withColumn("delivery", F.sum(begins.cast("int")).over(one_change))
    )


def _closed(placed: DataFrame, watermarks: DataFrame) -> DataFrame:
    """The positions of copies that come after a watermark at or above their time, with `closed` true."""
    closing = watermarks.select(*_PARTITION, F.col("offset").alias("closed_at"), "watermark_ts")
    after = (F.col("closed_at") < F.col("offset")) & (F.col("watermark_ts") >= F.col("commit_ts"))
    return placed.join(closing, list(_PARTITION)).where(after).select(*POSITION, F.lit(True).alias("closed")).distinct()


def _hash(*images: str) -> Column:
    """One number for the images, whatever the order of their columns."""
    parts: list[Column] = []
    for image in images:
        entries = F.array_sort(F.map_entries(image))
        parts += [F.col(image).isNull(), F.transform(entries, _with_null_mark)]
    return F.xxhash64(*parts)


def _with_null_mark(entry: Column) -> Column:
    """A hash passes over NULLs: without the mark {a: null, b: x} and {a: x, b: null} could be one."""
    return F.struct(entry["key"], entry["value"].isNull(), entry["value"])
