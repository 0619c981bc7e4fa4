"""Reduces the changes of a cut to one net change per row.

Changes of a key are ordered by commit TSO. At the same TSO deletes precede updates, and updates precede inserts: the
encoder splits a key change into DELETE and INSERT, which may be in different partitions (ticdc-facts §3). Without TSOs the
order is `es`, then (partition, offset); Canal's messages of one partition are in binlog order, which is the order of
offsets. Of a redelivered change the first copy counts, so that a row's metadata does not depend on how the copies are
spread over cuts.

Without TSOs, rows are distributed over partitions by their key, so that all writes of a key are in one partition, in order.
Only an UPDATE of the key deletes it from another partition: that of the new key (canal-facts 48). Then `at` orders its
changes, and in one moment of several partitions inserts minus deletes decide.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, GroupedData, Row, WindowSpec
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, has_trait
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.cut_rows import CutRows
from cdc_pipeline.mirrors.changes.row_groups import text_bytes
from cdc_pipeline.mirrors.merge.row_entries import RowSet, row_entries
from cdc_pipeline.mirrors.merge.small_rows import MAX_BYTES, StepRows, fetch_rows, small_steps
from cdc_pipeline.mirrors.model.steps import ApplyRows, Step
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.positions import POSITION

_LAST = ("entry.key", "entry.sign", "op", "commit_ts", *POSITION, "dialect")
_NO_ROW = (
    "named_struct('after', CAST(NULL AS MAP<STRING, STRING>), 'replaces_row', false, 'moved', false, 'key_only_since', "
    "CAST(NULL AS STRUCT<commit_ts: BIGINT, topic: STRING, `partition`: INT, `offset`: BIGINT>))"
)


def net_changes(entries: DataFrame) -> DataFrame:
    """One row per step and row identity of `entries` (`row_entries`): its last change.

    - `step` int
    - `identity` array: canonical texts, equal for equal rows
    - `key` array: the texts of the last change, in the order of `RowSet.columns`; NULL if it does not show which row it
      changes
    - `deleted` boolean: the last change deletes the identity
    - `delta` bigint: inserts minus deletes of the identity, for keyless tables
    - `counts` boolean: whether the row counts as a change; false for the delete half of an UPDATE, whose other half counts
    - `dialect`, `_commit_ts`, `_topic`, `_partition`, `_offset` of the last change
    - `after` map: the last image; of a deleted row only with `soft_delete`
    - `replaces_row` boolean: false if absent columns of `after` keep the mirror's values
    - `moved` boolean: the row came from another key, so its absent columns are unknown. False in steps without partial
      images
    - `key_only_since` struct(commit_ts, topic, partition, offset): the first of the last changes that have nothing but the
      handle key (`only_key`); NULL if the last change has more
    - `contested` boolean: the changes came in several partitions without TSOs; `resolve_contested` decides which is the last
    - `update_only`, `order_unknown` boolean: set by `resolve_contested`, here false
    """
    numbers_changes = has_trait(Trait.NUMBERS_CHANGES)
    time = F.when(~has_trait(Trait.IN_LOG_ORDER), F.col("commit_ts"))
    # the two halves of a DataWorks UPDATE have the same commit_ts and may be in different partitions
    rank = F.when(F.col("exact_ts") | numbers_changes, F.col("entry.rank"))
    is_contested = _in_several_partitions(~F.col("exact_ts") & ~F.col("keyless") & ~numbers_changes)
    last = _last_changes(entries, time, rank, is_contested.alias("contested"))
    return _net_rows(last, F.col("last.sign") < 0, F.lit(False), F.lit(False))


def resolve_contested(entries: DataFrame, net: DataFrame) -> DataFrame:
    """`net`, the net changes of these entries, with its `contested` rows resolved.

    The last change is that with the greatest `at`. If changes of that moment came in several partitions, the row is as
    its last write, and inserts minus deletes of its key in the whole cut decide whether it exists: 1 yes, -1 no, 0 if the
    mirror has it (`update_only`). In other cases, and if several partitions write it in that moment, it is `order_unknown`.
    """
    keys = F.broadcast(net.where("contested").select("step", "identity"))
    contested = entries.withColumn("identity", F.col("entry.identity"))
    contested = contested.join(keys, ["step", "identity"], "left_semi")
    one_key = Over.partitionBy("step", "identity")
    contested = contested.withColumn("is_newest", F.col("at") == F.max("at").over(one_key))
    contested = contested.withColumn("tied", _in_several_partitions(F.col("is_newest"), one_key)).drop("identity")
    is_write = F.col("entry.sign") > 0
    is_insert = (F.col("op") == "INSERT") | F.col("entry.moved")
    last = _last_changes(
        contested,
        F.col("at"),
        F.when(F.col("tied") & F.col("is_newest"), F.col("entry.sign")),  # deletes first
        F.bool_or("tied").alias("tied"),
        _in_several_partitions(F.col("is_newest") & is_write).alias("tied_writes"),
        F.sum(F.when(is_write & is_insert, 1).when(is_write, 0).otherwise(-1)).alias("balance"),
        F.lit(False).alias("contested"),
    )
    balance = F.col("balance")
    is_decided = F.col("tied") & ~F.col("tied_writes") & balance.between(-1, 1)
    deleted = (F.col("last.sign") < 0) | (is_decided & (balance < 0))
    resolved = _net_rows(last, deleted, is_decided & (balance == 0) & ~deleted, F.col("tied") & ~is_decided)
    return net.where("NOT contested").unionByName(resolved)


def _in_several_partitions(condition: Column, one_key: WindowSpec | None = None) -> Column:
    """Whether the entries of a key that match the condition are in several partitions."""
    partition = F.when(condition, F.xxhash64("topic", "partition"))
    ends = F.min(partition), F.max(partition)
    first, last = ends if one_key is None else (end.over(one_key) for end in ends)
    return F.coalesce(first != last, F.lit(False))


def _last_changes(entries: DataFrame, time: Column, rank: Column, *more: Column) -> DataFrame:
    """One row per identity: `last` (`_LAST` and `after` of the change with the greatest time, then rank, then position),
    `replaces_row`, `moved`, `key_only_since`, `delta`, `more`."""
    exact = F.col("exact_ts")
    # with an exact TSO the position only orders copies of a change. The first copy counts
    batch = F.when(exact, -F.col("batch_id"))
    offset = F.when(exact, -F.col("offset")).otherwise(F.col("offset"))
    # a copy with all columns counts before one with the handle key only, whichever came first
    has_columns = F.col("key_only_since").isNull()
    order = F.struct(time, rank, has_columns, batch, "topic", "partition", offset, "row", "entry.rank")
    more = (F.sum("entry.sign").alias("delta"), *more)
    if "partial" not in entries.columns:
        return _last_images(entries, order, *more)
    full, partial = (entries.where(condition) for condition in ("NOT partial", "partial"))
    return _last_images(full, order, *more).unionByName(_folded_images(partial, order, *more))


def _last_images(entries: DataFrame, order: Column, *more: Column) -> DataFrame:
    """`_last_changes` for changes that have all columns: the last image is the row."""
    last = F.max_by(F.struct(*_LAST, "after"), order).alias("last")
    return (
        _by_identity(entries)
        .agg(last, *more)
        .withColumns(
            {"replaces_row": F.lit(True), "moved": F.lit(False), "key_only_since": F.expr(_NO_ROW)["key_only_since"]}
        )
    )


def _folded_images(entries: DataFrame, order: Column, *more: Column) -> DataFrame:
    """`_last_changes` for changes that may lack columns: applies all changes of an identity in order."""
    image = F.map_entries("after").alias("image")
    change = F.struct(order.alias("order"), "entry.sign", "entry.moved", "soft_delete", "op", "key_only_since", image)
    changes = F.array_sort(F.collect_list(change))
    folded = F.aggregate(changes, F.expr(_NO_ROW), _apply_change).alias("fold")
    last = F.max_by(F.struct(*_LAST), order).alias("last")
    return (
        _by_identity(entries)
        .agg(last, folded, *more)
        .withColumn("last", F.col("last").withField("after", F.col("fold.after")))
        .select("*", "fold.replaces_row", "fold.moved", "fold.key_only_since")
        .drop("fold")
    )


def _apply_change(row: Column, change: Column) -> Column:
    """The row after one more change. A deleted row is empty, except with `soft_delete`."""
    image = F.map_from_entries(change["image"])
    # a column that is absent after an UPDATE of the key had its value in the deleted row and stays unknown
    starts_row = (change["op"] == "INSERT") | change["moved"]
    after = F.when(starts_row | row["after"].isNull(), image).otherwise(F.map_concat(row["after"], image))
    replaces_row = starts_row | row["replaces_row"]
    moved = F.when(starts_row, change["moved"]).otherwise(row["moved"])
    since = change["key_only_since"]
    since = F.when(starts_row | since.isNull(), since).otherwise(F.coalesce(row["key_only_since"], since))
    new_row = F.struct(
        after.alias("after"), replaces_row.alias("replaces_row"), moved.alias("moved"), since.alias("key_only_since")
    )
    return F.when((change["sign"] < 0) & ~change["soft_delete"], F.expr(_NO_ROW)).otherwise(new_row)


def _by_identity(entries: DataFrame) -> GroupedData:
    return entries.groupBy("step", "keyless", F.col("entry.identity").alias("identity"))


def _net_rows(last_changes: DataFrame, deleted: Column, update_only: Column, order_unknown: Column) -> DataFrame:
    """The columns of `net_changes` for the rows of `_last_changes`."""
    return last_changes.select(
        "step",
        "identity",
        "last.key",
        deleted.alias("deleted"),
        "delta",
        (~deleted | (F.col("last.op") == "DELETE")).alias("counts"),
        "last.dialect",
        "last.after",
        *(F.col(f"last.{name}").alias(f"_{name}") for name in ("commit_ts", *POSITION)),
        "replaces_row",
        "moved",
        "key_only_since",
        "contested",
        update_only.alias("update_only"),
        order_unknown.alias("order_unknown"),
    )


# ---- a cut


@dataclass(frozen=True)
class NetRows:
    """The net changes of a cut: typed and with the driver for small mirrors, for all others a view that their steps query.

    Made by `reduce_changes`. Call `close` after use.
    """

    view: str
    """A global temporary view of `net_changes`."""
    small: Mapping[int, StepRows]
    """The rows of steps on small mirrors."""
    _counts: Counter[int]
    _net: DataFrame

    def count(self, without: Collection[int] = ()) -> int:
        """The number of net changes, a change of the key being one, without those of some steps."""
        return sum(count for step, count in self._counts.items() if step not in without)

    def close(self) -> None:
        self._net.sparkSession.catalog.dropGlobalTempView(self.view)
        self._net.unpersist()


def reduce_changes(
    rows: CutRows, row_sets: Mapping[int, RowSet], steps: Sequence[Step], paths: LakePaths, settings: CutSettings
) -> NetRows:
    """Plans the query of the net changes, counts them, and fetches those of small mirrors.

    One query does all if all mirrors are small and the changes are few, so that their size is known.
    """
    entries, small = row_entries(rows.changes, row_sets.values()), small_steps(paths, steps, row_sets)
    size, typed_as = rows.text_bytes, (settings.time_zone, settings.columns.salt)
    net = net_changes(entries)
    if size is not None and size <= MAX_BYTES and len(small) == len(row_sets):
        fetched = fetch_rows(net, small, row_sets, *typed_as) if small else {}
        if not any(found.flag("contested").any() for found in fetched.values()):
            counts = Counter({step: int(found.flag("counts").sum()) for step, found in fetched.items()})
            return _with_view(net, fetched, counts)
    net = net.persist()
    groups = _count(net, small)
    if any(row["contested"] for row in groups):
        unresolved, net = net, resolve_contested(entries, net).persist()
        groups = _count(net, small)
        unresolved.unpersist()
    fitting, left = {}, MAX_BYTES
    for row in sorted(groups):
        if row["step"] in small and row["size"] <= left:
            fitting[row["step"]], left = small[row["step"]], left - row["size"]
    fetched = fetch_rows(net, fitting, row_sets, *typed_as) if fitting else {}
    return _with_view(net, fetched, Counter({row["step"]: row["counted"] for row in groups}))


def _count(net: DataFrame, small: Mapping[int, ApplyRows]) -> list[Row]:
    fetched = F.when(F.col("step").isin(list(small)), F.expr(text_bytes("after")))
    columns = (
        F.count_if("counts").alias("counted"),
        F.count_if("contested").alias("contested"),
        F.sum(fetched).alias("size"),
    )
    return net.groupBy("step").agg(*columns).collect()


def _with_view(net: DataFrame, small: Mapping[int, StepRows], counts: Counter[int]) -> NetRows:
    view = f"net_{uuid.uuid4().hex}"
    net.createOrReplaceGlobalTempView(view)
    return NetRows(view, small, counts, net)
