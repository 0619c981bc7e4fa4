"""Deliveries: where an encoder begins to send a stream again. Kafka and the encoders deliver at least once.

A new delivery starts

- where the stream steps back: a table of TiCDC by `commit_ts`, a partition of Canal by `at`, if it resends with the `ts` of
  the first sending (alibaba/canal#4839). It ends where the records are newer than all before it;
- where Canal's batch numbers start again along `ts` (canal-facts 3, 51), over all partitions of a topic. Without batch
  numbers `es` steps back there, a second later by `ts`. A long transaction may do the same, so such a place counts in
  `waits`, too;
- with the first TSO, which TiCDC sends after a restart with `enable-tidb-extension`;
- after a pause of a second inside one commit of TiCDC (ticdc-facts §10), or inside one batch number of Canal, which may have
  restarted in its first batch. Nothing else shows whether such a pause is a restart, so it counts in `pauses`.

A delivery repeats a stretch in its order. So what has a later `es` before it than the first time, in its own delivery, is no
copy: a binlog was played again (`mysqlbinlog | mysql`), which keeps the times of the rows.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, has_trait
from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.mirrors.model.source_tables import source_columns
from cdc_pipeline.positions import POSITION

ROW_POSITION = (*POSITION, "row")
"""Identifies one row of `change_log`."""
PARTITION = ("topic", "partition")
RESTART_MS = 1000
"""A restart takes at least this long."""
RESENT_MS = 600_000
"""How far back a restarted Canal may resend. Usually some seconds (canal-facts 51)."""
WAIT_MS = 100
"""Messages of one transaction are built within milliseconds. After this time a part of it may be sent again."""
RETRY_MS = 90
"""Canal waits 100 ms before it resends a batch under the next number (canal-facts 50)."""
_SENT = (*POSITION, "exact_ts", "commit_ts", "at", "ts", "message_id", "dialect", "database", "table")


def images_hash() -> Column:
    """A 64-bit hash of both images of a change, whatever the order of their columns. A restarted encoder may have other
    settings: `before` with the changed columns only is equal to the whole one."""
    parts: list[Column] = []
    complete = F.coalesce(F.map_concat("after", "before"), "before")
    for image, whole in (("before", complete), ("after", F.col("after"))):
        entries = F.array_sort(F.map_entries(whole))
        # `xxhash64` skips NULLs: without the flag {a: null, b: x} and {a: x, b: null} could have the same hash
        flagged = F.transform(entries, lambda entry: F.struct(entry["key"], entry["value"].isNull(), entry["value"]))
        parts += [F.col(image).isNull(), flagged]
    return F.xxhash64(*parts)


def sent_records(log: DataFrame, statements: DataFrame) -> DataFrame:
    """One row per row change and statement: its position, times, `dialect` and table, `op` of a change, `is_late` false."""
    rows = log.select(*_SENT, *source_columns(log), "row", "op")
    both = rows.unionByName(statements.select(*_SENT, F.lit(0).alias("row")), allowMissingColumns=True)
    return both.withColumn("is_late", F.lit(False))


def with_deliveries(records: DataFrame) -> DataFrame:
    """Adds, to columns of `sent_records`:

    - `delivery` array: equal for records of one delivery of a table in its partition, pauses aside. Its last number counts
      the deliveries that only `es` shows
    - `pauses` bigint: how many pauses precede the record, itself included; `waits` bigint: the same for shorter ones
    - `is_resent` boolean: the stream has stepped back, and is not yet newer than before
    - `is_behind` boolean: the delivery of Canal has a greater `es` before the record, in its partition
    - `ahead` bigint: the greatest `commit_ts` before the record, in its delivery since the last pause and in its partition;
      NULL without batch numbers
    - `reach` bigint: the greatest `commit_ts` of the delivery in its partition

    `is_late`: a watermark at or above the record came before it. Such records say nothing about others.
    """
    names, canal, is_numbered = records.columns, has_trait(Trait.IN_LOG_ORDER), F.col("message_id").isNotNull()
    stream = F.when(~canal, F.struct("database", "table", *source_columns(records), "is_late"))
    by_offset = Over.partitionBy(*PARTITION, "stream").orderBy("offset", "row")
    by_clock = Over.partitionBy("topic").orderBy("moment", "is_resent", "at", *ROW_POSITION[1:])
    before, before_by_clock = (over.rowsBetween(Over.unboundedPreceding, -1) for over in (by_offset, by_clock))
    # what Canal resends with its former `ts` may have a greater batch number
    moment = F.when(canal, F.shiftright("at", TSO_SHIFT)).otherwise(F.col("at"))
    records = records.withColumns({"stream": stream, "moment": moment})
    previous = {name: F.lag(name).over(by_offset) for name in ("at", "commit_ts", "ts")}
    same_commit = has_trait(Trait.RESTARTS_FROM_CHECKPOINT) & (F.col("commit_ts") == previous["commit_ts"])
    waited = F.col("ts") - previous["ts"]
    records = records.withColumns(
        {
            "steps_back": F.col("at") < previous["at"],
            "newest": F.max("moment").over(before),
            "pause": same_commit & (waited >= RESTART_MS),
            "wait": same_commit & (waited >= WAIT_MS),
            "waited": waited,
        }
    )
    resent_to = F.last(F.when(F.col("steps_back"), F.col("newest")), ignorenulls=True).over(by_offset)
    records = records.withColumn("is_resent", F.coalesce(F.col("moment") <= resent_to, F.lit(False)))
    number = F.when(canal & is_numbered & ~F.col("is_resent"), F.struct("message_id", "ts"))
    es_steps_back = canal & ~is_numbered & ~F.col("is_resent") & (F.col("commit_ts") < previous["commit_ts"])
    records = records.withColumns(
        {
            "number": number,
            "es_steps_back": es_steps_back & (F.col("waited") >= RESTART_MS),
            "wait": F.col("wait") | (es_steps_back & (F.col("waited") >= RETRY_MS)),
        }
    )
    number, last = F.col("number"), F.last("number", ignorenulls=True).over(before_by_clock)
    # after a stretch with its former clock, which ends with the newest message, Canal goes on with new numbers
    is_evidence = ~F.coalesce(F.lag("is_resent").over(by_clock), F.lit(False))
    again = is_evidence & (number["message_id"] == last["message_id"]) & (number["ts"] - last["ts"] >= RESTART_MS)
    restarts = is_evidence & (number["message_id"] < last["message_id"])
    records = records.withColumns({"restarts": restarts, "again": again})
    steps = F.when(F.col("is_resent"), _count("steps_back").over(by_offset)).otherwise(0)
    has_tso = F.col("exact_ts").cast("bigint")
    delivery = (has_tso, steps, _count("restarts").over(by_clock), _count("es_steps_back").over(by_offset))
    sums = {f"{name}s": _count(name).over(by_offset) + _count("again").over(by_clock) for name in ("pause", "wait")}
    records = _with_extents(records.withColumns({"delivery": F.array(*delivery), **sums}), canal, is_numbered)
    return records.select(*names, "delivery", *sums, "is_resent", "is_behind", "ahead", "reach")


def _with_extents(records: DataFrame, canal: Column, is_numbered: Column) -> DataFrame:
    """Adds `is_behind`, `ahead` and `reach` to records with `delivery` and `pauses`."""
    one_delivery = Over.partitionBy(*PARTITION, "delivery")
    before = one_delivery.orderBy("offset", "row").rowsBetween(Over.unboundedPreceding, -1)
    is_behind = F.coalesce(canal & (F.col("commit_ts") < F.max("commit_ts").over(before)), F.lit(False))
    reach = F.max("commit_ts").over(one_delivery)
    since_pause = Over.partitionBy(*PARTITION, "delivery", "pauses").orderBy("offset", "row")
    ahead = F.max("commit_ts").over(since_pause.rowsBetween(Over.unboundedPreceding, -1))
    ahead = F.when(canal & is_numbered, ahead)
    return records.withColumns({"is_behind": is_behind, "ahead": ahead, "reach": reach})


def _count(flag: str) -> Column:
    return F.sum(F.coalesce(F.col(flag), F.lit(False)).cast("int"))
