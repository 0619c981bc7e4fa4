"""What is left of each row's changes in a cut.

Order inside a key is by commit TSO; at one TSO deletes come before updates and updates before inserts, because the
encoder splits a key change into DELETE and INSERT that may travel in different partitions (ticdc-facts §3). Without
a TSO the order is `es`, then (partition, offset); Canal's messages of one partition are in the order of the binlog, which
their offsets have. Of a change that was delivered more than once the first copy counts, so that a row's trace is the same
whether its copies came in one cut or in several. Where the changes of one key came over several partitions without TSOs,
`contested_keys` settles what is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, has_trait
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, DataFrame, GroupedData

    from cdc_pipeline.mirrors.merge.row_identity import Identity
    from cdc_pipeline.mysql.model.table import TableName

_ROW_SETS = "key_columns ARRAY<STRING>, identity INT, keyless BOOLEAN, partial BOOLEAN, soft BOOLEAN"


@dataclass(frozen=True)
class RowSet:
    """The rows of one ApplyRows step: where they come from and what identifies one.

    The columns of `identity` are the key's; for a table without a key all of its columns, so that equal rows are one image.
    `partial` where some rows lack columns: an UPDATE leaves those as they are. `soft` where rows that go stay in the mirror,
    as they were last.
    """

    step: int
    source: TableName
    segments: tuple[int, ...]
    identity: Identity
    partial: bool = False
    soft: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.identity.columns)

    @property
    def keyless(self) -> bool:
        return self.identity.keyless


@dataclass(frozen=True)
class RowEntries:
    """What changes do to row identities, one row for each taking and each gift (`_ENTRIES`). `partial`: some rows lack
    columns. `exact`: all changes have TSOs."""

    frame: DataFrame
    partial: bool
    exact: bool


def net_changes(entries: RowEntries) -> DataFrame:
    """One row per step and row identity: what is left of all its changes. Identities whose newest change is one that an
    earlier cut has taken in (`fresh` false) have no row: the mirror shows it already.

    Columns: `step` int; `identity` array of canonical texts, equal for rows that are the same; `key` array of the texts
    that the last change has, in the order of `RowSet.columns`; `deleted` boolean, the last change was a DELETE; `delta`
    bigint, inserts minus deletes of that image (for tables without a key); `counts` boolean, false where the last change is
    an UPDATE that took the row away: it counts where it gave one; `dialect` and `after` (map of the last image, for a row
    that went only where it is `soft`), `_commit_ts`, `_topic`, `_partition`, `_offset` of the change that is left; `whole`
    boolean, false where `after` says only what differs from the row that the mirror has; `bare` struct (its commit_ts,
    topic, partition, offset), the first change since which no change says more of the row than its handle key
    (`row_groups.only_key`), null where one does; `contested` boolean, the changes came over several partitions without
    TSOs, so that `contested_keys` has to settle what is left; `only_if_there` and `unsettled` booleans are false.
    """
    if entries.exact:
        return net_rows(grouped(entries, last_order()), contested=F.lit(False))
    unordered = ~F.col("exact_ts") & ~F.col("keyless") & ~has_trait(Trait.NUMBERS_CHANGES)
    place = F.when(unordered, partition_number())
    apart = [F.min(place).alias("place"), F.max(place).alias("other_place"), F.max("fresh").alias("some_fresh")]
    found = grouped(entries, last_order(), *apart)
    return net_rows(found, contested=F.coalesce(F.col("place") != F.col("other_place"), F.lit(False)))


def row_entries(changes: DataFrame, row_sets: Iterable[RowSet], *, exact: bool) -> RowEntries:
    """What the changes do to row identities. `exact`: all of them have TSOs."""
    sets = list(row_sets)
    awkward = list(dict.fromkeys(item.identity for item in sets if not item.identity.is_plain))
    numbers = {identity: number for number, identity in enumerate(awkward)}
    rows = [
        (
            *(item.source.database, item.source.table, segment, item.step, list(item.columns)),
            *(numbers.get(item.identity), item.keyless, item.partial, item.soft),
        )
        for item in sets
        for segment in item.segments
    ]
    small = small_frame(
        changes.sparkSession, rows, f"`database` STRING, `table` STRING, segment INT, step INT, {_ROW_SETS}"
    )
    keyed = changes.join(F.broadcast(small), ["database", "table", "segment"]).withColumns(
        {"after_key": F.expr(_AFTER_KEY), "before_key": F.expr(_BEFORE_KEY)}
    )
    entries = keyed.withColumns(
        {"after_identity": _identified("after_key", awkward), "before_identity": _identified("before_key", awkward)}
    ).select(
        "step",
        "partial",
        "keyless",
        "soft",
        "before",
        F.explode(F.expr(_ENTRIES)).alias("entry"),
        "commit_ts",
        "batch_id",
        "topic",
        "partition",
        "offset",
        "row",
        "ts",
        "message_id",
        "exact_ts",
        "fresh",
        "dialect",
        "op",
        "after",
        F.when(F.col("only_key"), F.struct(*_ORIGIN)).alias("bare"),
    )
    if any(item.soft for item in sets):
        entries = entries.withColumn("after", F.expr(_LAST_SHOWN))
    return RowEntries(entries, any(item.partial for item in sets), exact)


def _identified(texts: str, identities: Sequence[Identity]) -> Column:
    """The texts as one array for all rows that are the same. Those of a plain identity are so as they are."""
    found = F.col(texts)
    for number, identity in enumerate(identities):
        found = F.when(F.col("identity") == number, identity.of(F.col(texts))).otherwise(found)
    return found


# what a row that goes was: an UPDATE that takes it to another key may have in `before` only what it changes
_LAST_SHOWN = (
    "CASE WHEN NOT soft OR entry.sign > 0 THEN after WHEN after IS NULL THEN before "
    "WHEN before IS NULL THEN after ELSE map_concat(after, before) END"
)
_ORIGIN = ("commit_ts", "topic", "partition", "offset")
_ORIGIN_TYPE = "STRUCT<commit_ts: BIGINT, topic: STRING, `partition`: INT, `offset`: BIGINT>"
LAST = ("entry.key", "entry.sign", "op", "commit_ts", "topic", "partition", "offset", "dialect", "fresh")

_AFTER_KEY = "transform(key_columns, name -> after[name])"
# what `before` lacks did not change
_BEFORE_KEY = (
    "transform(key_columns, name -> if(after IS NULL OR map_contains_key(before, name), before[name], after[name]))"
)
# A change as what it does to row identities: DELETE takes one, INSERT gives one, an UPDATE that keeps its key is one gift to
# it, and an UPDATE of the key (or of any column of a table without one) is a taking and a gift. An UPDATE of DataWorks may
# come as two changes, one for each image.
#
# `rank` orders entries at one TSO: all takings, then gifts of updates, then those of inserts. The taking half of an
# UPDATE ranks with deletes, so that two rows may swap their keys in one transaction. `moved` marks a gift to another
# key than the row had.
_TAKE = "named_struct('key', before_key, 'identity', before_identity, 'sign', -1L, 'rank', 0, 'moved', false)"
_GIVE = (
    "named_struct('key', after_key, 'identity', after_identity, 'sign', 1L, 'rank', if(op = 'UPDATE', 1, 2), "
    "'moved', false)"
)
_MOVE = _GIVE.replace("'moved', false", "'moved', true")
_ENTRIES = (
    f"CASE WHEN after IS NULL THEN array({_TAKE}) WHEN before IS NULL THEN array({_GIVE}) "
    f"WHEN NOT keyless AND before_identity <=> after_identity THEN array({_GIVE}) ELSE array({_TAKE}, {_MOVE}) END"
)


def partition_number() -> Column:
    """A topic's partition as one number."""
    return F.xxhash64("topic", "partition")


def last_order() -> Column:
    """By this the last change of an identity is the greatest."""
    # the two halves of an UPDATE of DataWorks share their place in the order, and may be in any of two partitions
    exact = F.col("exact_ts")
    ranked = exact | has_trait(Trait.SPLITS_UPDATES)
    rank = F.when(ranked, F.col("entry.rank")).otherwise(F.lit(0))
    # with an exact TSO position says nothing but which copy came first
    batch = F.when(exact, -F.col("batch_id"))
    offset = F.when(exact, -F.col("offset")).otherwise(F.col("offset"))
    # of the copies of one change the whole one counts, whichever came first
    whole = F.col("bare").isNull()
    time = F.when(~has_trait(Trait.IN_LOG_ORDER), F.col("commit_ts"))
    return F.struct(time, rank, whole, batch, "topic", "partition", offset, "row", "entry.rank")


def grouped(entries: RowEntries, order: Column, *more: Column) -> DataFrame:
    """One row per identity: `last`, the last change in this order with its image, `whole`, `bare`, `delta`, and `more`."""
    if not entries.partial:
        return _last_images(entries.frame, order, more)
    whole, partial = (entries.frame.where(condition) for condition in ("NOT partial", "partial"))
    return _last_images(whole, order, more).unionByName(_folded_images(partial, order, more))


def _last_images(entries: DataFrame, order: Column, more: Sequence[Column]) -> DataFrame:
    """The last change of each identity: enough where every image is whole."""
    return (
        _by_identity(entries)
        .agg(F.max_by(F.struct(*LAST, "after"), order).alias("last"), _delta(), *more)
        .withColumns({"whole": F.lit(True), "bare": F.lit(None).cast(_ORIGIN_TYPE)})
    )


def _folded_images(entries: DataFrame, order: Column, more: Sequence[Column]) -> DataFrame:
    """All changes of each identity put upon one another: an UPDATE that lacks columns leaves them as they were."""
    steps = F.array_sort(
        F.collect_list(
            F.struct(
                order.alias("place"),
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
        .agg(F.max_by(F.struct(*LAST), order).alias("last"), folded.alias("fold"), _delta(), *more)
        .withColumns(
            {
                "last": F.col("last").withField("after", F.col("fold.after")),
                "whole": F.col("fold.whole"),
                "bare": F.col("fold.bare"),
            }
        )
        .drop("fold")
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
    return entries.groupBy("step", "keyless", F.col("entry.identity").alias("identity"))


def _delta() -> Column:
    return F.sum(F.when(F.col("fresh"), F.col("entry.sign")).otherwise(F.lit(0))).alias("delta")


def net_rows(
    found: DataFrame,
    *,
    contested: Column | None = None,
    only_if_there: Column | None = None,
    unsettled: Column | None = None,
) -> DataFrame:
    """The columns of `net_changes` of what `grouped` has found."""
    no = F.lit(False)
    contested = no if contested is None else contested
    fresh = (
        F.when(contested, F.col("some_fresh")).otherwise(F.col("last.fresh"))
        if "place" in found.columns
        else F.col("last.fresh")
    )
    return found.where(fresh | (F.col("keyless") & (F.col("delta") != 0))).select(
        "step",
        "identity",
        F.col("last.key").alias("key"),
        (F.col("last.sign") < 0).alias("deleted"),
        "delta",
        ((F.col("last.sign") > 0) | (F.col("last.op") == "DELETE")).alias("counts"),
        F.col("last.dialect").alias("dialect"),
        F.col("last.after").alias("after"),
        F.col("last.commit_ts").alias("_commit_ts"),
        F.col("last.topic").alias("_topic"),
        F.col("last.partition").alias("_partition"),
        F.col("last.offset").alias("_offset"),
        "whole",
        "bare",
        contested.alias("contested"),
        (no if only_if_there is None else only_if_there).alias("only_if_there"),
        (no if unsettled is None else unsettled).alias("unsettled"),
    )
