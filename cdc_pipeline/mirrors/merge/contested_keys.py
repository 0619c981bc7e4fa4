"""Finds the last change of a key whose changes came in several partitions of a stream without TSOs.

Where rows are distributed over partitions by their key, all writes of a key are in one partition, in order. Only an UPDATE
of the key deletes it from another partition: that of the new key (canal-facts 48). Partitions are ordered by time: Canal's
clock `ts`, then the number of its batch. `es` does not order them, because a statement of a long transaction is logged after
others that began later (canal-facts 4).

For changes of one moment the inserts minus deletes of the key decide. With one more insert the row exists; with one more
delete it does not; with equally many it exists if it did before: the change before that moment shows it, else the mirror.
Its values are those of the last write. If this does not decide either, the row is `order_unknown` and the mirror gets a
gap.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, has_trait
from cdc_pipeline.dialects.unified import TSO_SHIFT
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
    resolved = _resolved_rows(_summaries(replace(entries, frame=_with_age(contested))))
    return net.where("NOT contested").unionByName(resolved)


def _time() -> tuple[Column, ...]:
    """The time of a change, comparable between partitions."""
    clock = F.coalesce(F.shiftleft("ts", TSO_SHIFT), F.col("commit_ts"))
    time = F.when(has_trait(Trait.IN_LOG_ORDER), clock).otherwise(F.col("commit_ts"))
    return time, F.coalesce("message_id", F.lit(0))


def _with_age(entries: DataFrame) -> DataFrame:
    """Adds `age`: 1 if the entry is of the last moment at which its key changed, 2 if it is of the moment before, …"""
    newest_first = Over.partitionBy("step", "entry.identity").orderBy(F.struct(*_time()).desc())
    return entries.withColumn("age", F.dense_rank().over(newest_first))


def _summaries(entries: RowEntries) -> DataFrame:
    """`grouped` with the columns that decide.

    - `last_write`: the last write, with the fields of `last`; NULL if there is none
    - `last_new`: the last entry that is new in this cut
    - `tied`: the newest entries are in several partitions
    - `tied_writes`: the newest writes are in several partitions
    - `partly_applied`: an earlier cut applied some of the newest entries
    - `balance`: inserts minus deletes of the key, from the moment before the newest or from the mirror
    """
    newest, before = F.col("age") == 1, F.col("age") == 2
    order = F.struct(*_time(), F.col("key_only_since").isNull(), "topic", "partition", "offset", "row", "entry.rank")
    is_write = F.col("entry.sign") > 0
    is_insert = (F.col("op") == "INSERT") | F.col("entry.moved")
    effect = F.when(is_write & is_insert, 1).when(is_write, 0).otherwise(-1)
    summaries = grouped(
        entries,
        order,
        F.max_by(F.when(is_write, F.struct(*LAST, "after")), F.when(is_write, order)).alias("last_write"),
        F.sum(F.when(F.col("is_new"), effect).otherwise(0)).alias("balance_of_cut"),
        F.sum(F.when(newest, effect).otherwise(0)).alias("balance_of_moment"),
        _in_several_partitions(newest).alias("tied"),
        _in_several_partitions(newest & is_write).alias("tied_writes"),
        F.max(newest & ~F.col("is_new")).alias("partly_applied"),
        F.max_by("entry.sign", F.when(before, order)).alias("sign_before"),
        _in_several_partitions(before).alias("tied_before"),
        F.max(F.when(before, F.struct(*_time()))).alias("moment_before"),
        F.min(F.when(F.col("is_new"), F.struct(*_time()))).alias("oldest_new"),
        F.max_by(F.struct(*LAST, "after"), F.when(F.col("is_new"), order)).alias("last_new"),
    )
    # A sum over the cut would count a delete that is older than a write of an earlier cut. Below the oldest new change of
    # the key, the window has only some of the earlier changes (`Window.changes`).
    is_known = ~F.col("tied_before") & (F.col("moment_before") >= F.col("oldest_new"))
    existed = F.when(F.col("sign_before") > 0, 1).when(F.col("sign_before") < 0, 0)
    after_moment = F.when(is_known, existed) + F.col("balance_of_moment")
    known = F.when(after_moment == 1, 1).when(after_moment == 0, -1)
    # after an earlier cut applied a part of the moment, the mirror no longer shows the key as it was before the moment
    by_mirror = F.when(F.col("partly_applied"), F.col("balance_of_moment")).otherwise(F.col("balance_of_cut"))
    return summaries.withColumn("balance", F.coalesce(known, by_mirror))


def _resolved_rows(summaries: DataFrame) -> DataFrame:
    """The net change of each key:

    | `tied`, one writing partition | `balance` | row |
    |---|---|---|
    | yes | 1 | `last_write` |
    | yes | 0, not `partly_applied` | `last_write`, `update_only` |
    | yes | -1 | deleted |
    | yes | other | `last`, `order_unknown` |
    | tied writes | any | `last`, `order_unknown` |
    | not tied | any | `last` |
    """
    balance, last, last_write = F.col("balance"), F.col("last"), F.col("last_write")
    decided = F.col("tied") & ~F.col("tied_writes") & balance.between(-1, 1)
    decided &= ~F.col("partly_applied") | (balance != 0)
    exists = decided & (balance >= 0) & last_write.isNotNull()
    order_unknown = F.col("tied") & ~decided
    # `last` has the image after all writes of the cut, also where a partial image was completed by earlier ones
    image = F.when(last["sign"] > 0, F.coalesce(last["after"], last_write["after"])).otherwise(last_write["after"])
    # a row that is not new would be filtered, and with it the deletion or the gap
    is_new = F.when(last["is_new"], last).otherwise(F.coalesce("last_new", "last"))
    deleted = is_new.withField("sign", F.lit(-1).cast("bigint"))
    unknown = F.when(order_unknown, is_new).otherwise(last)
    row = F.when(exists, last_write.withField("after", image)).when(decided & (balance < 0), deleted).otherwise(unknown)
    # the fold ended with the DELETE: it does not tell what the write before it lacked
    moved = F.col("moved") | (exists & (last["sign"] < 0) & ~F.col("replaces_row"))
    summaries = summaries.withColumns({"last": row, "moved": moved})
    return net_rows(summaries, update_only=exists & (balance == 0), order_unknown=order_unknown)


def _in_several_partitions(condition: Column) -> Column:
    """Whether the entries that match the condition are in several partitions."""
    partition = F.when(condition, partition_number())
    return F.coalesce(F.min(partition) != F.max(partition), F.lit(False))
