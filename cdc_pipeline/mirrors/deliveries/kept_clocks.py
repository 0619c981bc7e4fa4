"""Stretches that Canal resends with the `ts` of their first sending (alibaba/canal 4839).

A restarted Canal usually builds its messages again, with a new `ts` (`canal_deliveries`). Where it keeps the old one, the
clock of the partition steps back, and a message after the step equals one before it, `ts` included. Such a message is a
copy, whatever its batch number. A clock that was set back has no equal messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, has_trait
from cdc_pipeline.mirrors.deliveries.copies import PARTITION, ROW_POSITION, image_hash

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SENT = ("topic", "partition", "offset", "commit_ts", "ts", "message_id", "dialect")


def change_hash() -> Column:
    """A hash of a row of `change_log`, equal in all copies of its change."""
    return F.xxhash64("database", "table", "commit_ts", "op", image_hash("before", "after"))


def sent_records(log: DataFrame, statements: DataFrame) -> DataFrame:
    """One row per row change and statement: its position, times, `message_id` and `dialect`, and `change`, equal in all
    copies of it."""
    rows = log.select(*_SENT, "row", change_hash().alias("change"))
    content = F.xxhash64("database", "table", "sql", "commit_ts").alias("change")
    return rows.unionByName(statements.select(*_SENT, F.lit(0).alias("row"), content))


def with_kept_copies(log: DataFrame, statements: DataFrame) -> DataFrame:
    """Adds the columns of `with_kept_clocks` to rows of `change_log`. `statements`: the rows of `ddl_history` among them."""
    marks = with_kept_clocks(sent_records(log, statements)).where("kept_clocks > 0")
    marks = marks.select(*ROW_POSITION, "is_kept_copy", "kept_clocks").localCheckpoint()
    return log.join(marks, list(ROW_POSITION), "left").fillna({"is_kept_copy": False, "kept_clocks": 0})


def with_kept_clocks(records: DataFrame) -> DataFrame:
    """Adds `is_kept_copy`, and `kept_clocks`: how many stretches with a kept clock start up to the record in its partition.

    `records`: columns of `sent_records`, and any others. Of n equal messages with one `ts`, the n-th after a step is a copy
    of the n-th before it.
    """
    by_offset = Over.partitionBy(*PARTITION).orderBy("offset", "row")
    previous = {name: F.lag(name).over(by_offset) for name in ("ts", "message_id")}
    steps_back = (F.col("ts") < previous["ts"]) | (
        (F.col("ts") == previous["ts"]) & (F.col("message_id") < previous["message_id"])
    )
    one_step = Over.partitionBy(*PARTITION, "steps")
    equal = ("change", "ts")
    nth = F.row_number().over(Over.partitionBy(*PARTITION, *equal, "steps").orderBy("offset", "row"))
    copies = F.row_number().over(Over.partitionBy(*PARTITION, *equal, "nth").orderBy("offset", "row"))
    is_first = F.row_number().over(one_step.orderBy("offset", "row")) == 1
    return (
        records.withColumn("steps", F.sum(F.coalesce(steps_back, F.lit(False)).cast("int")).over(by_offset))
        .withColumn("nth", nth)
        .withColumn("is_kept_copy", has_trait(Trait.NUMBERS_BATCHES) & F.col("ts").isNotNull() & (copies > 1))
        .withColumn("starts_kept", is_first & F.max("is_kept_copy").over(one_step))
        .withColumn("kept_clocks", F.sum(F.col("starts_kept").cast("int")).over(by_offset))
        .drop("steps", "nth", "starts_kept")
    )
