"""Finds the last change of a key whose changes came in several partitions of a stream without TSOs.

Where rows are distributed over partitions by their key, all writes of a key are in one partition, in order. Only an UPDATE
of the key deletes it from another partition: that of the new key (canal-facts 48). `at` orders partitions.

For changes of one moment the inserts minus deletes of the key decide, over the whole cut. With one more insert the row
exists; with one more delete it does not; with equally many it exists if the mirror has it. Its values are those of the last
write. If this does not decide, the row is `order_unknown` and the mirror gets a gap.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from cdc_pipeline.mirrors.merge.net_changes import LAST, grouped, net_rows, partition_number

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from cdc_pipeline.mirrors.merge.net_changes import RowEntries


def resolve_contested(entries: RowEntries, net: DataFrame) -> DataFrame:
    """`net`, the net changes of these entries, with its `contested` rows resolved.

    `update_only`: the row is as `after` if the mirror has the key; else it does not exist.
    `order_unknown`: which change was the last is unknown.
    """
    keys = F.broadcast(net.where("contested").select("step", "identity"))
    contested = entries.frame.withColumn("identity", F.col("entry.identity"))
    contested = contested.join(keys, ["step", "identity"], "left_semi").drop("identity")
    one_key = Over.partitionBy("step", "entry.identity")
    newest = contested.withColumn("is_newest", F.col("at") == F.max("at").over(one_key))
    return net.where("NOT contested").unionByName(_resolved_rows(_summaries(replace(entries, frame=newest))))


def _summaries(entries: RowEntries) -> DataFrame:
    """`grouped` with `last_write` (the fields of `last`; NULL if there is none), `tied` (the newest entries are in several
    partitions), `tied_writes` (the newest writes are), and `balance` (inserts minus deletes of the key)."""
    order = F.struct("at", F.col("key_only_since").isNull(), "topic", "partition", "offset", "row", "entry.rank")
    is_write, newest = F.col("entry.sign") > 0, F.col("is_newest")
    is_insert = (F.col("op") == "INSERT") | F.col("entry.moved")
    return grouped(
        entries,
        order,
        F.max_by(F.when(is_write, F.struct(*LAST, "after")), F.when(is_write, order)).alias("last_write"),
        F.sum(F.when(is_write & is_insert, 1).when(is_write, 0).otherwise(-1)).alias("balance"),
        _in_several_partitions(newest).alias("tied"),
        _in_several_partitions(newest & is_write).alias("tied_writes"),
    )


def _resolved_rows(summaries: DataFrame) -> DataFrame:
    """The net change of each key:

    | `tied`, one writing partition | `balance` | row |
    |---|---|---|
    | yes | 1 | `last_write` |
    | yes | 0 | `last_write`, `update_only` |
    | yes | -1 | deleted |
    | yes | other | `last`, `order_unknown` |
    | tied writes | any | `last`, `order_unknown` |
    | not tied | any | `last` |
    """
    balance, last, last_write = F.col("balance"), F.col("last"), F.col("last_write")
    decided = F.col("tied") & ~F.col("tied_writes") & balance.between(-1, 1)
    exists = decided & (balance >= 0) & last_write.isNotNull()
    # `last` has the image after all writes of the cut, also where a partial image was completed by earlier ones
    image = F.when(last["sign"] > 0, F.coalesce(last["after"], last_write["after"])).otherwise(last_write["after"])
    deleted = last.withField("sign", F.lit(-1).cast("bigint"))
    row = F.when(exists, last_write.withField("after", image)).when(decided & (balance < 0), deleted).otherwise(last)
    # the fold ended with the DELETE: it does not tell what the write before it lacked
    moved = F.col("moved") | (exists & (last["sign"] < 0) & ~F.col("replaces_row"))
    summaries = summaries.withColumns({"last": row, "moved": moved})
    return net_rows(summaries, update_only=exists & (balance == 0), order_unknown=F.col("tied") & ~decided)


def _in_several_partitions(condition: Column) -> Column:
    """Whether the entries that match the condition are in several partitions."""
    partition = F.when(condition, partition_number())
    return F.coalesce(F.min(partition) != F.max(partition), F.lit(False))
