"""Copies of row changes: at-least-once input, exactly-once mirrors (DESIGN §2, promise 4).

A table with a key and exact TSOs needs none of this, because the same change twice is one change of its key. Rows without a
key have no identity, and where only `es` orders changes, a resent old change would undo a newer one.

Of equal changes as many are real as the fullest delivery has (`deliveries`): the n-th in a later delivery is a copy of the
n-th in an earlier one. A row below a watermark that came before it is a delivery by itself, and so is each change of
DataWorks, whose sequence number identifies it.

Where the messages do not show whether equal rows without a key are copies, the table gets a gap: rows on both sides of a
pause, rows of Canal with an older `es` than the rows between them, and rows of a batch that may be a retry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, has_trait
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.changes.deliveries import (
    PARTITION,
    ROW_POSITION,
    image_hash,
    retried_batches,
    sent_records,
    with_deliveries,
)
from cdc_pipeline.mirrors.changes.row_filters import is_in_tables
from cdc_pipeline.mysql.model.table import TableName

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark.sql import DataFrame

    from cdc_pipeline.mirrors.changes.window import Window

_CHANGE = ("database", "table", "commit_ts", "op", "images")
"""Equal in all copies of a change. `images` is the `image_hash` of both images."""
_UNSURE = Gap(
    GapKind.UNKNOWN_DUPLICATES,
    "equal rows arrived more than once, as redeliveries or as separate rows; the messages do not show which: compare the "
    "table with upstream",
)


@dataclass(frozen=True)
class Copies:
    """The copies among the row changes of a cut."""

    positions: DataFrame | None = None
    """The positions (`ROW_POSITION`) of the copies; None if no change occurs more than once."""
    gaps: dict[TableName, Gap] = field(default_factory=dict)
    """A gap for each table with equal changes that may or may not be copies."""


def find_copies(
    changes: DataFrame,
    log: DataFrame,
    table: Callable[[str], DataFrame],
    window: Window,
    tables: Collection[TableName] = (),
) -> Copies:
    """The copies among `changes`. With TSOs only keyless rows are searched: those whose messages name no key, or those of
    `tables` if given.

    `log`: all of `change_log`. `table` returns `watermarks` or `ddl_history`; it is called only if a change occurs more than
    once.
    """
    is_keyless = is_in_tables(tables) if tables else F.coalesce(F.size("key_names"), F.lit(0)) <= 0
    suspects = changes if window.resolved_tso is None else changes.where(is_keyless)
    suspects = suspects.select(
        *ROW_POSITION,
        "batch_id",
        "dialect",
        "exact_ts",
        "message_id",
        *_CHANGE[:-1],
        image_hash("before", "after").alias("images"),
        is_keyless.alias("keyless"),
    )
    repeated = suspects.groupBy(*_CHANGE).agg(F.count("*").alias("number")).where("number > 1")
    if repeated.isEmpty():
        return Copies()
    # the steps below read these several times
    equal = suspects.join(repeated.drop("number"), list(_CHANGE), "left_semi").localCheckpoint()
    span = equal.agg(F.min("batch_id").alias("oldest"), F.max("exact_ts").alias("exact")).first()
    assert span is not None
    decoded = F.col("batch_id").between(span["oldest"], window.last_batch)
    topics = F.broadcast(equal.select("topic").distinct())
    near = [frame.where(decoded).join(topics, ["topic"], "left_semi") for frame in (log, table("ddl_history"))]
    records = with_deliveries(sent_records(*near))
    retried = F.broadcast(retried_batches(records).withColumn("retried", F.lit(True)))
    found = records.select(*ROW_POSITION, "delivery", "pauses", "is_behind")
    rows = equal.join(found, list(ROW_POSITION)).join(retried, ["topic", "message_id"], "left")
    rows = _with_lateness(rows, table("watermarks")) if span["exact"] else rows.withColumn("is_late", F.lit(False))
    rows = rows.localCheckpoint()
    return Copies(_copies(rows), _gaps(rows))


def _with_lateness(rows: DataFrame, watermarks: DataFrame) -> DataFrame:
    """Adds `is_late`: a watermark at or above the row's `commit_ts` came before it in its partition."""
    oldest = rows.groupBy(*PARTITION).agg(F.min("commit_ts").alias("oldest"))
    marks = watermarks.join(F.broadcast(oldest), list(PARTITION)).where("watermark_ts >= oldest")
    marks = marks.groupBy(*PARTITION).agg(F.collect_list(F.struct("offset", "watermark_ts")).alias("marks"))
    late = F.exists(
        "marks", lambda mark: (mark["offset"] < F.col("offset")) & (mark["watermark_ts"] >= F.col("commit_ts"))
    )
    joined = rows.join(F.broadcast(marks), list(PARTITION), "left")
    return joined.withColumn("is_late", F.coalesce(late, F.lit(False))).drop("marks")


def _copies(rows: DataFrame) -> DataFrame:
    """All but the first of each ordinal, which numbers the equal changes of a delivery."""
    one_delivery = Over.partitionBy(*_CHANGE, *PARTITION, "is_late", "delivery", "pauses").orderBy("offset", "row")
    is_alone = F.col("is_late") | has_trait(Trait.NUMBERS_CHANGES)
    numbered = rows.withColumn("ordinal", F.when(is_alone, 1).otherwise(F.row_number().over(one_delivery)))
    one_ordinal = Over.partitionBy(*_CHANGE, "ordinal").orderBy("is_late", "batch_id", *ROW_POSITION)
    return numbered.withColumn("nth", F.row_number().over(one_ordinal)).where("nth > 1").select(*ROW_POSITION)


def _gaps(rows: DataFrame) -> dict[TableName, Gap]:
    one_delivery = [*_CHANGE, *PARTITION, "delivery"]
    unsure = (F.min("pauses") < F.max("pauses")) | (F.min("is_behind") < F.max("is_behind"))
    unsure |= F.coalesce(F.max("retried"), F.lit(False)) & (F.count("*") > 1)
    found = rows.where("keyless AND NOT is_late").groupBy(*one_delivery).agg(unsure.alias("unsure")).where("unsure")
    return {
        TableName(row["database"], row["table"]): _UNSURE
        for row in found.select("database", "table").distinct().collect()
    }
