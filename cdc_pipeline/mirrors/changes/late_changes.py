"""Late changes: row changes that belong before the end of an earlier cut.

A watermark states that all changes below it were sent. Without watermarks a cut ends behind the newest change of a topic, or
a second before it while the topic has new records. What comes later is a redelivery, with no effect, if `change_log` has it
already, unless it is the rest of the commit or batch at that end. Otherwise the stream broke its guarantee (DESIGN §2,
promise 4): the change stays in `change_log`, the mirror gets a gap, and a check fails. The mirror does not change, because
later changes may have overwritten the row. A rebuild applies the change in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from cdc_pipeline.dialects import unified
from cdc_pipeline.dialects.traits import Trait, has_trait
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.changes.deliveries import PARTITION, RESENT_MS, RESTART_MS
from cdc_pipeline.mirrors.changes.window import Window
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import BATCH_POSITION, Position
from cdc_pipeline.spark.small_frames import totals

_CHANGE = ("database", "table", "commit_ts", "op", "row_identity")


@dataclass(frozen=True)
class Breach:
    """Late changes of one table that are no redeliveries. The position is that of the first one."""

    name: TableName
    changes: int
    """How many there are."""
    topic: str
    partition: int
    offset: int

    @property
    def gap(self) -> Gap:
        """The gap that the mirror gets."""
        message = (
            f"{self.changes} change(s) arrived after the mirror had passed their time, the first at "
            f"{Position(self.topic, self.partition, self.offset)}; a rebuild applies them"
        )
        return Gap(GapKind.LATE_CHANGES, message)


@dataclass(frozen=True)
class LateChanges:
    """The late changes of a cut."""

    changes: int
    """How many there are: breaches and redeliveries."""
    breaches: tuple[Breach, ...]
    """One per table."""


NO_LATE_CHANGES = LateChanges(0, ())


def late_changes(window: Window, log: DataFrame) -> LateChanges:
    """Counts the late changes of the new batches."""
    late = window.late_rows(log)
    times = F.min("commit_ts").alias("first"), F.max("commit_ts").alias("last"), F.min("at").alias("first_at")
    counts = totals(late, F.count("*").alias("changes"), *times)
    if not counts["changes"]:
        return NO_LATE_CHANGES
    log = log.where(F.col("batch_id") <= window.after_batch)
    unseen = _unseen(log, late, counts["first"], counts["last"])
    if window.resolved_tso is None:
        unseen = unseen.unionByName(_rest_of_commit(log, late, counts["first_at"])).distinct()
    return LateChanges(counts["changes"], _breaches(unseen))


def _unseen(log: DataFrame, late: DataFrame, first: int, last: int) -> DataFrame:
    """The late changes that `log` does not have. `first` and `last` are their lowest and highest `commit_ts`.

    Changes are equal by table, time, op and row. At one TSO a row is compared by the key that its message names, else as a
    whole: an upgraded encoder may send other columns in another form.
    """
    known = log.where(F.col("commit_ts").between(first, last))
    known = known.select(*_CHANGE[:-1], _row_identity().alias("row_identity")).distinct()
    unseen = late.withColumn("row_identity", _row_identity()).join(known, list(_CHANGE), "left_anti")
    return unseen.select("database", "table", *BATCH_POSITION, "row")


def _rest_of_commit(log: DataFrame, late: DataFrame, first: int) -> DataFrame:
    """The late changes with which a stream goes on behind its newest change in `log`, or at the same clock: those of one
    commit, batch or second may be equal. `first`: the lowest `at` of `late`.

    It does not go on where it has stepped back, or at the same clock in another batch of Canal or a second later, as after
    a restart. Only batch numbers show that a change of a key is no redelivery.
    """
    # as in `with_deliveries`
    names = [F.when(~has_trait(Trait.IN_LOG_ORDER), F.col(name)).otherwise("") for name in ("database", "table")]
    stream, own = [*PARTITION, "stream"], F.struct(*names).alias("stream")
    by_stream = log.where(F.col("at") >= first - (RESENT_MS << unified.TSO_SHIFT)).groupBy(*PARTITION, own)
    newest = by_stream.agg(F.max(F.struct("at", "ts", "message_id")).alias("newest"))
    lowest = F.min("at").over(Over.partitionBy(*stream).orderBy("offset", "row"))
    rows = late.select("*", own).withColumn("lowest", lowest).join(newest, stream, "left")
    is_newer = F.coalesce(F.col("lowest") > F.col("newest.at"), F.lit(True))
    is_same = (F.col("lowest") == F.col("newest.at")) & F.col("message_id").eqNullSafe(F.col("newest.message_id"))
    is_same &= F.coalesce(F.col("ts") - F.col("newest.ts") < RESTART_MS, F.lit(True))
    goes_on = is_same | (is_newer & F.coalesce(F.col("message_id") >= F.col("newest.message_id"), F.lit(True)))
    is_sure = unified.is_keyless() | F.col("message_id").isNotNull()
    found = rows.where(is_sure & ~has_trait(Trait.NUMBERS_CHANGES) & goes_on)
    return found.select("database", "table", *BATCH_POSITION, "row")


def _breaches(unseen: DataFrame) -> tuple[Breach, ...]:
    rows = (
        unseen.groupBy("database", "table")
        .agg(F.count("*").alias("changes"), F.min(F.struct(*BATCH_POSITION)).alias("first"))
        .orderBy("database", "table")
        .collect()
    )
    return tuple(
        Breach(TableName(row["database"], row["table"]), row["changes"], *tuple(row["first"])[1:]) for row in rows
    )


def _row_identity() -> Column:
    """The values of the key if the message names one and has a TSO, else both images, as JSON."""
    named = F.col("exact_ts") & (F.coalesce(F.size("key_names"), F.lit(0)) > 0)
    key = F.map_filter(F.coalesce("after", "before"), lambda name, _: F.array_contains("key_names", name))
    images = [F.to_json(F.array_sort(F.map_entries(image))) for image in ("before", "after")]
    return F.when(named, F.to_json(F.array_sort(F.map_entries(key)))).otherwise(F.to_json(F.array(*images)))
