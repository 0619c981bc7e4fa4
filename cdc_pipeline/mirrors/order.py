"""The rows of a cut in order: which segment of its table a change lies in, and what is left of each row's changes.

Order inside a key is by commit TSO; at one TSO deletes come before updates and updates before inserts, because the
encoder splits a key change into DELETE and INSERT that may travel in different partitions (ticdc-facts §3). Without
a TSO the order is `es`, which for Canal is a whole second, then the ms at which Canal built the message, then
(partition, offset). Of a change that was delivered more than once the first copy counts, so that a row's trace is the
same whether its copies came in one cut or in several.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.canal import CANAL
from cdc_pipeline.dialects.dataworks import NAME as DATAWORKS
from cdc_pipeline.mirrors.events import creates
from cdc_pipeline.mirrors.partial_rows import only_key
from cdc_pipeline.mirrors.shards import ShardName, source_columns
from cdc_pipeline.resources.small_frames import small_frame
from cdc_pipeline.schemas.changes import DropTable, OfShard, TruncateTable
from cdc_pipeline.schemas.table import TableName

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, DataFrame, GroupedData

    from cdc_pipeline.mirrors.events import DdlEvent

_BOUND_TYPE = (
    "ARRAY<STRUCT<commit_ts: BIGINT, exact: BOOLEAN, topic: STRING, `partition`: INT, `offset`: BIGINT, creates: BOOLEAN, "
    "ts: BIGINT>>"
)
# A row at the DDL's own TSO lies before it. Where only (milli)seconds are known, the DDL's own partition tells by offset,
# in other partitions Canal's clock does, and nothing of a table can lie before the statement that makes it.
_LIES_AFTER = (
    "bound -> commit_ts > bound.commit_ts OR (NOT bound.exact AND commit_ts = bound.commit_ts AND (bound.creates OR "
    "CASE WHEN topic = bound.topic AND `partition` = bound.`partition` THEN `offset` > bound.`offset` "
    f"ELSE dialect = '{CANAL.name}' AND coalesce(ts > bound.ts, false) END))"
)
_ROW_SETS = "key_columns ARRAY<STRING>, keyless BOOLEAN, partial BOOLEAN, soft BOOLEAN"


def with_segments(changes: DataFrame, events: Iterable[DdlEvent]) -> DataFrame:
    """`changes` with `segment`: how many of its table's DDL events of this cut lie before a row."""
    segment = F.expr(f"size(filter(bounds, {_LIES_AFTER}))")
    return (
        _with_bounds(changes, events)
        .withColumn("segment", F.when(F.col("bounds").isNull(), F.lit(0)).otherwise(segment))
        .drop("bounds")
    )


def not_emptied(changes: DataFrame, events: Sequence[DdlEvent]) -> DataFrame:
    """The changes that lie after all of these events of their table: those before a TRUNCATE or DROP TABLE that an earlier
    cut has carried out are superseded by it."""
    if not events:
        return changes
    after_all = F.expr(f"bounds IS NULL OR forall(bounds, {_LIES_AFTER})")
    bounds = _bounds((event, name) for event in events for name in _emptied(event))
    left = _with_bounds_of(changes, bounds, _TABLE).where(after_all).drop("bounds")
    if not (source := source_columns(changes)):
        return left
    of_shards = _bounds((event, name) for event in events for name in _emptied_shards(event))
    if not of_shards:
        return left
    return _with_bounds_of(left, of_shards, (*_TABLE, *source)).where(after_all).drop("bounds")


def _emptied(event: DdlEvent) -> list[TableName]:
    changes = tuple(change for change in event.changes if not isinstance(change, OfShard))
    return list(replace(event, changes=changes).names())


def _emptied_shards(event: DdlEvent) -> list[ShardName]:
    return [
        ShardName(change.name, change.shard)
        for change in event.changes
        if isinstance(change, OfShard) and isinstance(change.change, (TruncateTable, DropTable))
    ]


def _with_bounds(changes: DataFrame, events: Iterable[DdlEvent]) -> DataFrame:
    """`changes` with `bounds`: where each of its table's events lies; null where it has none."""
    bounds = _bounds((event, name) for event in events for name in event.names())
    return _with_bounds_of(changes, bounds, _TABLE)


_TABLE = ("database", "table")


def _bounds(
    events: Iterable[tuple[DdlEvent, TableName | ShardName]],
) -> dict[tuple[str, ...], list[tuple[object, ...]]]:
    found: dict[tuple[str, ...], list[tuple[object, ...]]] = defaultdict(list)
    for event, name in events:
        makes = isinstance(name, TableName) and creates(event, name)
        place = (event.commit_ts, event.exact_ts, *event.position, makes, event.ts)
        parts = (name.mirror, name.source) if isinstance(name, ShardName) else (name,)
        found[tuple(text for part in parts for text in (part.database, part.table))].append(place)
    return found


def _with_bounds_of(
    changes: DataFrame, bounds: dict[tuple[str, ...], list[tuple[object, ...]]], columns: tuple[str, ...]
) -> DataFrame:
    if not bounds:
        return changes.withColumn("bounds", F.lit(None).cast(_BOUND_TYPE))
    names = "".join(f"`{column}` STRING, " for column in columns)
    rows = [(*name, found) for name, found in bounds.items()]
    small = small_frame(changes.sparkSession, rows, f"{names}bounds {_BOUND_TYPE}")
    return changes.join(F.broadcast(small), list(columns), "left")


@dataclass(frozen=True)
class RowSet:
    """The rows of one ApplyRows step: where they come from and what identifies one.

    `columns` are the key's; for a table without a key all of its columns, so that equal rows are one image. `partial`
    where some rows lack columns: an UPDATE leaves those as they are. `soft` where rows that go stay in the mirror, as they
    were last.
    """

    step: int
    source: TableName
    segments: tuple[int, ...]
    columns: tuple[str, ...]
    keyless: bool
    partial: bool = False
    soft: bool = False


def net_changes(changes: DataFrame, row_sets: Iterable[RowSet]) -> DataFrame:
    """One row per step and row identity: what is left of all its changes. Identities whose newest change is one that an
    earlier cut has taken in (`fresh` false) have no row: the mirror shows it already.

    Columns: `step` int; `key` array of the identity's texts in the order of `RowSet.columns`; `deleted` boolean, the
    last change was a DELETE; `delta` bigint, inserts minus deletes of that image (for tables without a key);
    `counts` boolean, false where the last change is an UPDATE that took the row away: it counts where it gave one;
    `dialect` and `after` (map of the last image, for a row that went only where it is `soft`), `_commit_ts`, `_topic`,
    `_partition`, `_offset` of the change that is left; `whole` boolean, false where `after` says only what differs from the
    row that the mirror has; `bare` struct (its commit_ts, topic, partition, offset), the first change since which no change
    says more of the row than its handle key (`partial_rows.only_key`), null where one does.
    """
    sets = list(row_sets)
    rows = [
        (
            *(item.source.database, item.source.table, segment, item.step, list(item.columns)),
            *(item.keyless, item.partial, item.soft),
        )
        for item in sets
        for segment in item.segments
    ]
    small = small_frame(
        changes.sparkSession, rows, f"`database` STRING, `table` STRING, segment INT, step INT, {_ROW_SETS}"
    )
    entries = changes.join(F.broadcast(small), ["database", "table", "segment"]).select(
        "step",
        "partial",
        "keyless",
        "soft",
        "before",
        F.explode(_entries()).alias("entry"),
        "commit_ts",
        "batch_id",
        "topic",
        "partition",
        "offset",
        "row",
        "ts",
        "exact_ts",
        "fresh",
        "dialect",
        "op",
        "after",
        F.when(only_key(changes), F.struct(*_ORIGIN)).alias("bare"),
    )
    if any(item.soft for item in sets):
        entries = entries.withColumn("after", F.expr(_LAST_SHOWN))
    if not any(item.partial for item in sets):
        return _last_images(entries)
    return _last_images(entries.where("NOT partial")).unionByName(_folded_images(entries.where("partial")))


# what a row that goes was: an UPDATE that takes it to another key may have in `before` only what it changes
_LAST_SHOWN = (
    "CASE WHEN NOT soft OR entry.sign > 0 THEN after WHEN after IS NULL THEN before "
    "WHEN before IS NULL THEN after ELSE map_concat(after, before) END"
)
_ORIGIN = ("commit_ts", "topic", "partition", "offset")
_ORIGIN_TYPE = "STRUCT<commit_ts: BIGINT, topic: STRING, `partition`: INT, `offset`: BIGINT>"
_LAST = ("entry.sign", "op", "commit_ts", "topic", "partition", "offset", "dialect", "fresh")


def _order() -> Column:
    # the two halves of an UPDATE of DataWorks share their place in the order, and may be in any of two partitions
    exact = F.col("exact_ts")
    ranked = exact | (F.col("dialect") == DATAWORKS)
    rank = F.when(ranked, F.col("entry.rank")).otherwise(F.lit(0))
    built = F.when(F.col("dialect") == CANAL.name, F.col("ts"))
    # with an exact TSO position says nothing but which copy came first
    batch = F.when(exact, -F.col("batch_id"))
    offset = F.when(exact, -F.col("offset")).otherwise(F.col("offset"))
    # of the copies of one change the whole one counts, whichever came first
    whole = F.col("bare").isNull()
    return F.struct("commit_ts", rank, whole, built, batch, "topic", "partition", offset, "row", "entry.rank")


def _last_images(entries: DataFrame) -> DataFrame:
    """The last change of each identity: enough where every image is whole."""
    return (
        _by_identity(entries)
        .agg(F.max_by(F.struct(*_LAST, "after"), _order()).alias("last"), _delta())
        .transform(_net)
        .withColumns({"whole": F.lit(True), "bare": F.lit(None).cast(_ORIGIN_TYPE)})
    )


def _folded_images(entries: DataFrame) -> DataFrame:
    """All changes of each identity put upon one another: an UPDATE that lacks columns leaves them as they were."""
    steps = F.array_sort(
        F.collect_list(
            F.struct(
                _order().alias("place"),
                "entry.sign",
                "entry.moved",
                "soft",
                "op",
                "bare",
                F.map_entries("after").alias("image"),
            )
        )
    )
    folded = F.aggregate(steps.alias("steps"), _no_row(), _put_upon)
    return (
        _by_identity(entries)
        .agg(F.max_by(F.struct(*_LAST), _order()).alias("last"), folded.alias("fold"), _delta())
        .withColumn("last", F.col("last").withField("after", F.col("fold.after")))
        .transform(lambda frame: _net(frame, "fold.whole", "fold.bare"))
    )


def _put_upon(row: Column, step: Column) -> Column:
    """The row after one more change. A row that an UPDATE brings from another key is as whole as it will get: what it
    lacks was in a row that is gone. Of one that goes nothing is left but where it is `soft`."""
    image = F.map_from_entries(step["image"])
    anew = (step["op"] == "INSERT") | step["moved"]
    after = F.when(anew | row["after"].isNull(), image).otherwise(F.map_concat(row["after"], image))
    whole = anew | row["whole"]
    bare = F.when(anew | step["bare"].isNull(), step["bare"]).otherwise(F.coalesce(row["bare"], step["bare"]))
    there = F.struct(after.alias("after"), whole.alias("whole"), bare.alias("bare"))
    return F.when((step["sign"] < 0) & ~step["soft"], _no_row()).otherwise(there)


def _no_row() -> Column:
    none = f"'after', CAST(NULL AS MAP<STRING, STRING>), 'whole', false, 'bare', CAST(NULL AS {_ORIGIN_TYPE})"
    return F.expr(f"named_struct({none})")


def _by_identity(entries: DataFrame) -> GroupedData:
    return entries.groupBy("step", "keyless", F.col("entry.key").alias("key"))


def _delta() -> Column:
    return F.sum(F.when(F.col("fresh"), F.col("entry.sign")).otherwise(F.lit(0))).alias("delta")


def _net(grouped: DataFrame, *more: str) -> DataFrame:
    return grouped.where(F.col("last.fresh") | (F.col("keyless") & (F.col("delta") != 0))).select(
        "step",
        "key",
        (F.col("last.sign") < 0).alias("deleted"),
        "delta",
        ((F.col("last.sign") > 0) | (F.col("last.op") == "DELETE")).alias("counts"),
        F.col("last.dialect").alias("dialect"),
        F.col("last.after").alias("after"),
        F.col("last.commit_ts").alias("_commit_ts"),
        F.col("last.topic").alias("_topic"),
        F.col("last.partition").alias("_partition"),
        F.col("last.offset").alias("_offset"),
        *more,
    )


def _entries() -> Column:
    """A change as what it does to row identities: DELETE takes one, INSERT gives one, an UPDATE that keeps its key is
    one gift to it, and an UPDATE of the key (or of any column of a table without one) is a taking and a gift.

    `rank` orders entries at one TSO: all takings, then gifts of updates, then those of inserts. The taking half of an
    UPDATE ranks with deletes, so that two rows may swap their keys in one transaction. `moved` marks a gift to another
    key than the row had.
    """
    after_key = "transform(key_columns, name -> after[name])"
    # what `before` lacks did not change
    before_key = (
        "transform(key_columns, name -> if(after IS NULL OR map_contains_key(before, name), before[name], after[name]))"
    )
    # an UPDATE of DataWorks may come as two changes, one for each image
    take = f"named_struct('key', {before_key}, 'sign', -1L, 'rank', 0, 'moved', false)"
    give = f"named_struct('key', {after_key}, 'sign', 1L, 'rank', if(op = 'UPDATE', 1, 2), 'moved', false)"
    moved = give.replace("'moved', false", "'moved', true")
    return F.expr(
        f"CASE WHEN after IS NULL THEN array({take}) "
        f"WHEN before IS NULL THEN array({give}) "
        f"WHEN NOT keyless AND {before_key} <=> {after_key} THEN array({give}) "
        f"ELSE array({take}, {moved}) END"
    )
