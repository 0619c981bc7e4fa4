"""Changes that a stream brings again: at least once in, exactly once out (DESIGN §2, promise 4).

A keyed table whose changes have exact TSOs needs none of this: the same change twice is one change of its key. Two
others do. Rows of a table without a key have no identity, so that a change sent twice is told from two equal ones only
by where it stands; and where order is by `es` alone, an old change would undo a newer one.

An encoder sends the changes of a table in the order of their commits. A new delivery begins:

- where that order steps back (a restart from a checkpoint, a retry; ticdc-facts §10);
- where Canal's batch numbers begin again (canal-facts 51), or its `es` steps back and all that came from there on comes
  again: Canal sends batches that are not acknowledged once more with new numbers (canal-facts 50), while `es` alone steps
  back with each transaction that took long (canal-facts 4);
- inside one commit of TiCDC where the changefeed has restarted: a watermark lies in between that does not advance (a
  changefeed that resumes sends its checkpoint again, ticdc-facts §5), or the message was built seconds after the one
  before it, where a transaction's rows follow one another within milliseconds. The commit then begins anew: the stretch
  after it holds all changes of the one before, or fewer where it was cut short in its turn. Else the sink has only paused.

Equal changes inside one delivery are two; the n-th of them in a later delivery is the n-th of the first delivery, sent
again. What comes after a watermark that has closed its time is sent again, each copy by itself; so is a change of
DataWorks that has the number (`sequenceId`) of another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from cdc_pipeline.dialects.canal import CANAL
from cdc_pipeline.dialects.dataworks import NAME as DATAWORKS
from cdc_pipeline.dialects.ticdc import TICDC
from cdc_pipeline.mirrors.shards import source_columns
from cdc_pipeline.mirrors.table_rows import of_tables

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column, DataFrame

    from cdc_pipeline.mirrors.window import Window
    from cdc_pipeline.schemas.table import TableName

POSITION = ("topic", "partition", "offset", "row")
_CHANGE = ("database", "table", "commit_ts", "op", "images")
_PARTITION = ("topic", "partition")
_COMMIT = ("database", "table", "commit_ts", *_PARTITION)
_RESTART_MS = 1000
"""The least time in which a changefeed restarts. Messages of one transaction follow one another within milliseconds."""


def repeated_positions(
    changes: DataFrame, log: DataFrame, watermarks: DataFrame, window: Window, tables: Collection[TableName] = ()
) -> DataFrame | None:
    """The positions (`POSITION`) of changes that were delivered before; None where there are none. `changes` are those that
    the cut looks at; `log` and `watermarks` are the whole tables.

    With TSOs a row that its message names a key of needs none of this, but for those of `tables`: their mirrors have no key.
    """
    keyless = F.coalesce(F.size("key_names"), F.lit(0)) <= 0
    suspects = changes if window.resolved_tso is None else changes.where(of_tables(tables) if tables else keyless)
    copies = suspects.select(
        *POSITION,
        "batch_id",
        "dialect",
        *source_columns(log),
        *_CHANGE[:-1],
        _hash("before", "after").alias("images"),
    )
    repeated = copies.groupBy(*_CHANGE).agg(F.count("*").alias("copies")).where("copies > 1")
    if repeated.isEmpty():
        return None
    copies = copies.join(repeated, list(_CHANGE), "left_semi")
    return _later_copies(copies, log, watermarks, window).select(*POSITION)


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
    marks = watermarks.where(batches)
    rows = _stretches(log.where(batches), copies, marks)
    placed = copies.join(rows.select(*POSITION, "breaks", "pauses"), list(POSITION))
    placed = placed.join(_restarts(rows, copies), [*_COMMIT, "breaks", "pauses"])
    one_change = Over.partitionBy(*_CHANGE, *_PARTITION).orderBy("offset", "row")
    before = {name: F.lag(name).over(one_change) for name in ("offset", "breaks", "restarts")}
    closed = _closed(placed, watermarks.where(F.col("batch_id") <= window.last_batch))
    found = (
        placed.join(closed, list(POSITION), "left")
        .withColumn("closed", F.coalesce("closed", F.lit(False)))
        .withColumns({f"{name}_before": column for name, column in before.items()})
    )
    by_itself = F.col("closed") | (F.col("dialect") == DATAWORKS)
    another = (F.col("breaks") != F.col("breaks_before")) | (F.col("restarts") != F.col("restarts_before")) | by_itself
    begins = F.col("offset_before").isNotNull() & another
    return found.withColumn("delivery", F.sum(begins.cast("int")).over(one_change))


def _stretches(log: DataFrame, copies: DataFrame, watermarks: DataFrame) -> DataFrame:
    """The rows of the copies' tables with `breaks`, how often their table's order has stepped back before them, and
    `pauses`, how often the changefeed may have restarted inside one commit."""
    # each of the tables that are merged into one mirror is sent in an order of its own
    table = ("database", "table", *source_columns(log))
    streams = F.broadcast(copies.select(*_PARTITION, *table).distinct())
    by_offset = Over.partitionBy(*_PARTITION, *table).orderBy("offset", "row")
    earlier = {name: F.lag(name).over(by_offset) for name in ("commit_ts", "message_id", "ts", "resumed")}
    back = (F.col("commit_ts") < earlier["commit_ts"]) | (F.col("message_id") < earlier["message_id"])
    later = (F.col("ts") - earlier["ts"] >= _RESTART_MS) | (F.col("resumed") > earlier["resumed"])
    pause = (F.col("dialect") == TICDC.name) & (F.col("commit_ts") == earlier["commit_ts"]) & later
    rows = (
        log.join(streams, [*_PARTITION, *table], "left_semi")
        .join(F.broadcast(_resumptions(watermarks)), list(_PARTITION), "left")
        .withColumn("resumed", F.size(F.filter(F.coalesce("resumptions", F.array()), lambda at: at < F.col("offset"))))
        .withColumns({"back": F.coalesce(back, F.lit(False)), "pause": F.coalesce(pause, F.lit(False))})
    )
    again = (F.col("message_id") < earlier["message_id"]) | (F.col("ts") < earlier["ts"])
    rows = _without_late_clocks(rows, [*_PARTITION, *table], again=again)
    rows = rows.withColumns(
        {
            "breaks": F.sum(F.col("back").cast("int")).over(by_offset),
            "pauses": F.sum(F.col("pause").cast("int")).over(by_offset),
        }
    )
    # what a watermark has closed is whole; without watermarks more of it may be about to come
    cut_short = F.lead("back").over(by_offset) | F.lead("pause").over(by_offset)
    return rows.withColumn("cut_short", F.coalesce(cut_short, ~F.col("exact_ts")))


def _without_late_clocks(rows: DataFrame, stream: Collection[str], *, again: Column) -> DataFrame:
    """`back` is false where only Canal's `es` steps back, and what follows is not what came before. Canal sends again all
    batches that were not acknowledged, in order: so the change before the step comes again, or (as yet) no new one comes.
    `again`: Canal's numbers begin again, or its clock steps back, as where a message was copied."""
    by_offset = Over.partitionBy(*stream).orderBy("offset", "row")
    one_run = Over.partitionBy(*stream, "run")
    late = (F.col("dialect") == CANAL.name) & F.col("back") & ~F.coalesce(again, F.lit(False))
    change = F.xxhash64("commit_ts", "op", _hash("before", "after"))
    found = (
        rows.withColumns({"late": late, "change": change})
        .withColumns(
            {"run": F.sum(F.col("back").cast("int")).over(by_offset), "previous": F.lag("change").over(by_offset)}
        )
        .withColumn("newly", F.col("run") == F.min("run").over(Over.partitionBy(*stream, "change")))
        .withColumn("previous", F.first("previous").over(one_run.orderBy("offset", "row")))
        .withColumns(
            {
                "resent": F.max(F.col("change") == F.col("previous")).over(one_run),
                "some_new": F.max("newly").over(one_run),
            }
        )
    )
    return found.withColumn("back", F.col("back") & (~F.col("late") | F.col("resent") | ~F.col("some_new"))).drop(
        "late", "change", "run", "previous", "newly", "resent", "some_new"
    )


def _resumptions(watermarks: DataFrame) -> DataFrame:
    """By topic and partition: `resumptions`, the offsets of watermarks that are not above all those before them."""
    before = Over.partitionBy(*_PARTITION).orderBy("offset").rowsBetween(Over.unboundedPreceding, -1)
    repeated = F.col("watermark_ts") <= F.max("watermark_ts").over(before)
    return (
        watermarks.select(*_PARTITION, "offset", repeated.alias("repeated"))
        .where("repeated")
        .groupBy(*_PARTITION)
        .agg(F.collect_list("offset").alias("resumptions"))
    )


def _restarts(rows: DataFrame, copies: DataFrame) -> DataFrame:
    """`restarts` by commit, `breaks` and `pauses`: how many of the pauses so far are restarts. After one the commit begins
    anew, so that the stretch after it holds all changes of the one before; or, where it is cut short, none but those."""
    commits = F.broadcast(copies.select(*_COMMIT).distinct())
    stretch = (*_COMMIT, "breaks", "pauses")
    in_turn = Over.partitionBy(*_COMMIT, "breaks").orderBy("pauses")
    one_change = Over.partitionBy(*_COMMIT, "breaks", "op", "images").orderBy("pauses")
    counted = (
        rows.join(commits, list(_COMMIT), "left_semi")
        .groupBy(*stretch, "op", _hash("before", "after").alias("images"))
        .agg(
            F.count("*").alias("count"),
            F.max_by("cut_short", F.struct("offset", "row")).alias("cut_short"),
            F.max(F.struct("offset", "row")).alias("last"),
        )
        .withColumn("number", F.dense_rank().over(in_turn))
        .withColumns({"count_before": F.lag("count").over(one_change), "seen_in": F.lag("number").over(one_change)})
    )
    both = F.when(F.col("seen_in") == F.col("number") - 1, F.least("count", "count_before")).otherwise(0)
    sized = counted.groupBy(*stretch).agg(
        F.sum("count").alias("size"), F.sum(both).alias("shared"), F.max_by("cut_short", "last").alias("cut_short")
    )
    all_again = F.col("shared") == F.lag("size").over(in_turn)
    anew = all_again | (F.col("cut_short") & (F.col("shared") == F.col("size")))
    return sized.withColumn("anew", F.coalesce(anew, F.lit(False)).cast("int")).select(
        *stretch, F.sum("anew").over(in_turn).alias("restarts")
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
