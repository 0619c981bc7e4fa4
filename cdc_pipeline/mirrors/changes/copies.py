"""Copies of row changes: at-least-once input, exactly-once mirrors (DESIGN §2, promise 4).

A table with a key and exact TSOs needs none of this, because the same change twice is one change of its key. Rows without a
key have no identity, and where only `es` orders changes, a resent old change would undo a newer one.

Of equal changes as many are real as the fullest delivery has (`deliveries`): the n-th in a later delivery is a copy of the
n-th in an earlier one. A row below a watermark that came before it is a delivery by itself, and so is each change of
DataWorks, whose sequence number identifies it. If the first delivery of Canal went on to a later `es`, it had all of them:
what a later one has more is from a batch that Canal sent twice (canal-facts 50). What Canal reads from a binlog that was
played again counts to the first delivery, after the equal changes of its own. What Canal resends with its former clock is a
copy of what has that time.

A resent stretch comes before what is new. So in a later delivery no change of a key is a copy after a row of its table that
has not come before.

Where the messages do not show whether equal rows are copies, the table gets a gap: rows without a key on both sides of a
pause, or of Canal with an older `es` than the rows between them, and rows of a batch and the next one, which may be a
retry; with a key these have an effect in a later delivery only. The same holds for rows without a key after a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyspark.sql import DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from cdc_pipeline.dialects import unified
from cdc_pipeline.dialects.traits import Trait, has_trait
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.changes.deliveries import (
    PARTITION,
    RESENT_MS,
    RETRY_MS,
    ROW_POSITION,
    images_hash,
    sent_records,
    with_deliveries,
)
from cdc_pipeline.mirrors.changes.window import Window
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.spark.small_frames import totals

_CHANGE = ("database", "table", "op", "time", "images")
"""Equal in all copies of a change. `time`: `commit_ts` if it is a TSO in all of them or the number of DataWorks, else `es`.
`images`: the `images_hash`."""
_UNSURE = Gap(
    GapKind.UNKNOWN_DUPLICATES,
    "equal rows arrived more than once, as redeliveries or as separate rows; the messages do not show which: compare the "
    "table with upstream",
)


def find_copies(
    changes: DataFrame,
    log: DataFrame,
    table: Callable[[str], DataFrame],
    window: Window,
    tables: Collection[TableName] = (),
) -> tuple[DataFrame, dict[TableName, Gap]] | None:
    """The positions (`ROW_POSITION`) of the copies among `changes`, and a gap for each table with equal changes that may or
    may not be copies. None if no change occurs more than once.

    With TSOs only keyless rows are searched: those whose messages name no key, or those of `tables` if given. `log`: all of
    `change_log`. `table` returns `watermarks` or `ddl_history`; it is called only if a change occurs more than once.
    """
    is_keyless = unified.is_keyless()
    if tables:
        names = (F.struct(F.lit(name.database).alias("database"), F.lit(name.table).alias("table")) for name in tables)
        is_keyless = F.struct("database", "table").isin(list(names))
    suspects = changes if window.resolved_tso is None else changes.where(is_keyless)
    if window.resolved_tso is None and (earlier := _applied_since(changes, log, window)) is not None:
        suspects = suspects.select(*log.columns).unionByName(earlier)
    suspects = suspects.select(
        *ROW_POSITION,
        "batch_id",
        "dialect",
        "exact_ts",
        "ts",
        "commit_ts",
        *_CHANGE[:-2],
        F.when(has_trait(Trait.NUMBERS_CHANGES), F.col("commit_ts")).otherwise(F.col("es")).alias("time"),
        images_hash().alias("images"),
        is_keyless.alias("keyless"),
    )
    repeated = suspects.groupBy(*_CHANGE).agg(F.count("*").alias("number")).where("number > 1")
    if repeated.isEmpty():
        return None
    equal = suspects.join(repeated.drop("number"), list(_CHANGE), "left_semi")
    all_exact = F.min("exact_ts").over(Over.partitionBy(*_CHANGE))
    equal = equal.withColumn("time", F.when(all_exact, F.col("commit_ts")).otherwise(F.col("time"))).drop("commit_ts")
    equal = equal.localCheckpoint()  # the steps below read these several times
    # batches of Canal are compared over the whole topic, the rows of other encoders by table
    canal, streams = has_trait(Trait.IN_LOG_ORDER), [*PARTITION, "database", "table"]
    bounds = F.min("batch_id").alias("oldest"), F.min("ts").alias("ts"), F.max("exact_ts").alias("exact")
    span = totals(equal, *bounds, F.min(F.when(canal, F.col("time"))).alias("es"))
    decoded = F.col("batch_id").between(span["oldest"], window.last_batch)
    topics, tables_of = (F.broadcast(equal.select(*names).distinct()) for names in (["topic"], streams))
    # with what a restarted Canal sends again before the first of them
    known = (F.col("batch_id") <= window.last_batch) & (decoded | (F.col("ts") >= (span["ts"] or 0) - RESENT_MS))
    near = [frame.where(known & canal).join(topics, ["topic"], "left_semi") for frame in (log, table("ddl_history"))]
    others = log.where(decoded & ~canal).join(tables_of, streams, "left_semi")
    records = sent_records(near[0].unionByName(others), near[1])
    if span["exact"]:
        records = _with_lateness(records, table("watermarks").where(F.col("batch_id") <= window.last_batch))
    rows = _numbered(_equal_records(with_deliveries(records), equal, span["es"] or 0)).localCheckpoint()
    return rows.where("is_copy").select(*ROW_POSITION), _gaps(rows)


def _applied_since(changes: DataFrame, log: DataFrame, window: Window) -> DataFrame | None:
    """The rows of earlier cuts that Canal or DataWorks may have sent again with a new clock: none is older upstream than
    the oldest of `changes`. What TiCDC resends has its former time and is late."""
    (oldest,) = totals(changes.where("at <> commit_ts"), F.min("commit_ts"))
    if oldest is None:
        return None
    return window.rows_before(log).where((F.col("at") != F.col("commit_ts")) & (F.col("commit_ts") >= oldest))


def _with_lateness(records: DataFrame, watermarks: DataFrame) -> DataFrame:
    """Sets `is_late`: a watermark at or above the record's `commit_ts` came before it in its partition."""
    so_far = Over.partitionBy(*PARTITION).orderBy("offset").rowsBetween(Over.unboundedPreceding, Over.currentRow)
    partitions = F.broadcast(records.select(*PARTITION).distinct())
    marks = watermarks.join(partitions, list(PARTITION), "left_semi").select(*PARTITION, "offset", "watermark_ts")
    both = records.withColumn("is_record", F.lit(True)).unionByName(marks, allowMissingColumns=True)
    is_late = F.coalesce(F.max("watermark_ts").over(so_far) >= F.col("commit_ts"), F.lit(False))
    return both.withColumn("is_late", is_late).where("is_record").drop("watermark_ts", "is_record")


def _equal_records(records: DataFrame, equal: DataFrame, es: int) -> DataFrame:
    """The records of the rows of `equal`, with its columns and `follows_new`: a row change of the table precedes it in its
    delivery that has no equal one. `es`: the oldest of `equal`."""
    own = equal.select(*ROW_POSITION, "batch_id", "time", "images", "keyless")
    records = records.join(own, list(ROW_POSITION), "left")
    is_new = F.col("images").isNull() & (F.shiftright("commit_ts", unified.TSO_SHIFT) >= es) & F.col("op").isNotNull()
    one_table = Over.partitionBy(*PARTITION, "delivery", "database", "table")
    position = F.struct("offset", "row")
    follows_new = position > F.min(F.when(has_trait(Trait.IN_LOG_ORDER) & is_new, position)).over(one_table)
    return records.withColumn("follows_new", F.coalesce(follows_new, F.lit(False))).where("images IS NOT NULL")


def _numbered(rows: DataFrame) -> DataFrame:
    """Adds to equal rows:

    - `is_copy`: of those with one ordinal, which numbers the equal changes of a delivery, it is not the first, or it is a
      surplus
    - `is_retry`: the equal change before may be of the same batch of Canal
    - `is_surplus`: the first delivery of Canal has fewer; `is_covered`: it went on to a later `es`
    - `may_be_new`: it counts as a copy, but what precedes it in its delivery is new
    """
    is_former = F.col("is_resent") & ~F.min("is_resent").over(Over.partitionBy(*_CHANGE, "ts"))
    rows = rows.withColumn("is_late", F.col("is_late") | (has_trait(Trait.IN_LOG_ORDER) & is_former))
    one_delivery = [*_CHANGE, *PARTITION, "is_late", "delivery"]
    by_offset = Over.partitionBy(*one_delivery).orderBy("offset", "row")
    previous = {name: F.lag(name).over(by_offset) for name in ("message_id", "ts")}
    is_retry = has_trait(Trait.IN_LOG_ORDER) & (F.col("message_id") == previous["message_id"] + 1)
    is_retry = F.coalesce(is_retry & (F.col("ts") - previous["ts"] >= RETRY_MS), F.lit(False))
    in_order, one_change = ("is_late", "batch_id", *ROW_POSITION), Over.partitionBy(*_CHANGE)
    first = F.min(F.struct(*in_order, "delivery", "pauses", "reach")).over(one_change)
    rows = rows.withColumns({"is_retry": is_retry, "first": first})
    before = one_change.orderBy(*in_order).rowsBetween(Over.unboundedPreceding, -1)
    is_replayed = F.col("ahead") > F.coalesce(F.max("ahead").over(before), F.lit(0))
    is_replayed &= (F.shiftright("ahead", unified.TSO_SHIFT) > F.col("time")) & ~F.col("is_retry")
    so_far = Over.partitionBy(*one_delivery, "pauses").orderBy("offset", "row")
    number = F.row_number().over(so_far)
    rows = rows.withColumns({"is_replayed": is_replayed, "own": number})
    is_replayed = F.max("is_replayed").over(so_far) & ~F.col("is_retry")  # with the equal changes that follow
    rows = rows.withColumn("is_replayed", is_replayed)
    placed = {
        name: F.when(F.col("is_replayed"), F.col(f"first.{name}")).otherwise(F.col(name))
        for name in ("delivery", "pauses")
    }
    rows = rows.withColumns(placed)
    is_alone = F.col("is_late") | has_trait(Trait.NUMBERS_CHANGES)
    rows = rows.withColumn("ordinal", F.when(is_alone, 1).otherwise(F.greatest(number, "own")))
    one_ordinal = Over.partitionBy(*_CHANGE, "ordinal").orderBy(*in_order)
    nth = F.row_number().over(one_ordinal)
    is_later = has_trait(Trait.IN_LOG_ORDER) & (F.col("delivery") != F.col("first.delivery"))
    most = F.max(F.when(~is_later, F.col("ordinal"))).over(one_change)
    # a long transaction of a binlog, too, has an older `es` than the rows before it
    is_covered = F.expr("NOT is_behind OR is_retry") & (F.shiftright("first.reach", unified.TSO_SHIFT) > F.col("time"))
    rows = rows.withColumns({"nth": nth, "is_surplus": is_later & (F.col("ordinal") > most), "is_covered": is_covered})
    is_copy = F.expr("nth > 1 OR (is_surplus AND is_covered)")
    may_be_new = is_copy & is_later & F.col("follows_new") & ~F.col("is_late")
    return rows.withColumns({"is_copy": is_copy & (F.col("keyless") | ~may_be_new), "may_be_new": may_be_new})


def _gaps(rows: DataFrame) -> dict[TableName, Gap]:
    unsure = (F.min("waits") < F.max("waits")) | (F.min("is_behind") < F.max("is_behind"))
    unsure = (F.bool_and("keyless") & unsure) | F.bool_or(F.expr("is_retry OR (keyless AND may_be_new)"))
    found = rows.where("NOT is_late AND IF(is_surplus, (NOT is_covered) OR (keyless AND is_behind), keyless)")
    # equal rows of deliveries that only `es` shows are compared, too
    sure_part = F.expr("slice(delivery, 1, size(delivery) - 1)")
    found = found.groupBy(*_CHANGE, *PARTITION, sure_part).agg(unsure.alias("unsure")).where("unsure")
    return {
        TableName(row["database"], row["table"]): _UNSURE
        for row in found.select("database", "table").distinct().collect()
    }
