"""Keys whose changes came over several partitions of a stream without TSOs: which of them is the last.

Where rows are spread over partitions by their key, all changes that give a row its key lie in one partition, in order. Only
an UPDATE that takes a row to another key lies elsewhere: in the partition of the new one (canal-facts 48). Between
partitions time orders: Canal's clock, then the number of its batch, never `es`: a statement of a transaction that took long
is logged after others that began later (canal-facts 4). What came in one moment is told by how many gifts and takings of
the key there are: one gift more than takings, and the row is there; one taking more, and it is not; as many of both, and it
is as it was. The row is what the last gift made it, and gifts lie in one partition, in order.

What that does not tell either is `unsettled`: the mirror is marked.
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


def contested_settled(entries: RowEntries, net: DataFrame) -> DataFrame:
    """`net`, of `net_changes.net_changes` of these entries, with what is left of keys that are `contested` in it.

    `only_if_there` is true where the row is as `after` has it if the mirror has one of the key, and else is not there.
    `unsettled` is true where nothing tells which change was the last.
    """
    keys = F.broadcast(net.where("contested").select("step", "identity"))
    moment = F.struct(*_time())
    one_key = Over.partitionBy("step", "entry.identity")
    contested = (
        entries.frame.withColumn("identity", F.col("entry.identity"))
        .join(keys, ["step", "identity"], "left_semi")
        .drop("identity")
        .withColumn("newest", moment == F.max(moment).over(one_key))
    )
    return net.where("NOT contested").unionByName(_settled(replace(entries, frame=contested)))


def _time() -> tuple[Column, ...]:
    """When a change happened, as far as that can be held against other partitions."""
    clock = F.coalesce(F.shiftleft("ts", TSO_SHIFT), F.col("commit_ts"))
    time = F.when(has_trait(Trait.IN_LOG_ORDER), clock).otherwise(F.col("commit_ts"))
    return time, F.coalesce("message_id", F.lit(0))


def _settled(entries: RowEntries) -> DataFrame:
    order = F.struct(*_time(), F.col("bare").isNull(), "topic", "partition", "offset", "row", "entry.rank")
    gift = F.col("entry.sign") > 0
    gives = (F.col("op") == "INSERT") | F.col("entry.moved")
    effect = F.when(gift & gives, 1).when(gift, 0).otherwise(-1)
    found = grouped(
        entries,
        order,
        F.max_by(F.when(gift, F.struct(*LAST, "after")), F.when(gift, order)).alias("given"),
        F.sum(F.when(F.col("fresh"), effect).otherwise(0)).alias("balance_of_cut"),
        F.sum(F.when(F.col("newest"), effect).otherwise(0)).alias("balance_of_moment"),
        _apart(F.col("newest")).alias("tied"),
        _apart(F.col("newest") & gift).alias("gifts_apart"),
        F.max(F.col("newest") & ~F.col("fresh")).alias("seen_before"),
        F.max_by(F.struct(*LAST, "after"), F.when(F.col("fresh"), order)).alias("last_fresh"),
    )
    # where earlier cuts took in a part of the moment, the mirror does not show how the key was before it
    balance = F.when(F.col("seen_before"), F.col("balance_of_moment")).otherwise(F.col("balance_of_cut"))
    found = found.withColumn("balance", balance)
    told = F.col("tied") & ~F.col("gifts_apart") & F.col("balance").between(-1, 1)
    told &= ~F.col("seen_before") | (F.col("balance") != 0)
    there = told & (F.col("balance") >= 0) & F.col("given").isNotNull()
    image = F.coalesce("last.after", "given.after")
    given = F.col("given").withField("after", F.when(F.col("last.sign") > 0, image).otherwise(F.col("given.after")))
    gone = F.col("last").withField("sign", F.lit(-1).cast("bigint"))
    # the mirror was marked for nothing where what this cut brings were left out: it is let in, and the doubt with it
    unsettled = F.col("tied") & ~told
    last = F.when(unsettled & ~F.col("last.fresh"), F.coalesce("last_fresh", "last")).otherwise(F.col("last"))
    found = found.withColumn("last", F.when(there, given).when(told & (F.col("balance") < 0), gone).otherwise(last))
    return net_rows(found, only_if_there=there & (F.col("balance") == 0), unsettled=unsettled)


def _apart(condition: Column) -> Column:
    """Whether changes of which this is true lie in several partitions."""
    place = F.when(condition, partition_number())
    return F.coalesce(F.min(place) != F.max(place), F.lit(False))
