"""Reduces the changes of a cut to one net change per row.

Changes of a key are ordered by commit TSO. At the same TSO deletes precede updates, and updates precede inserts: the
encoder splits a key change into DELETE and INSERT, which may be in different partitions (ticdc-facts §3). Without TSOs the
order is `es`, then (partition, offset); Canal's messages of one partition are in binlog order, which is the order of
offsets. Of a redelivered change the first copy counts, so that a row's metadata does not depend on how the copies are
spread over cuts. `contested_keys` orders the changes of a key that came in several partitions without TSOs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, has_trait, trait_sql
from cdc_pipeline.mirrors.merge.row_identity import Identity
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, DataFrame, GroupedData


_ROW_SETS = (
    "spellings MAP<STRING, STRING>, key_columns ARRAY<STRING>, identity INT, keyless BOOLEAN, partial BOOLEAN, "
    "soft_delete BOOLEAN"
)


@dataclass(frozen=True)
class RowSet:
    """The row changes of one `ApplyRows` step."""

    step: int
    """Index of the step in the plan."""
    source: TableName
    segments: tuple[int, ...]
    identity: Identity
    """By the key columns; by all columns for a keyless table."""
    partial: bool = False
    """Some changes lack columns; an UPDATE leaves these unchanged."""
    soft_delete: bool = False
    """`soft_delete`: deleted rows stay in the mirror, with their last values."""
    spellings: tuple[tuple[str, str], ...] = ()
    """(name in messages, name in the mirror) of columns that messages spell in another case."""

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.identity.columns)

    @property
    def keyless(self) -> bool:
        return self.identity.keyless


@dataclass(frozen=True)
class RowEntries:
    """The effects of changes on row identities."""

    frame: DataFrame
    """One row per write or delete of an identity (`_ENTRIES`)."""
    partial: bool
    """Some changes lack columns."""
    exact: bool
    """All changes have TSOs."""


def net_changes(entries: RowEntries) -> DataFrame:
    """One row per step and row identity: its last change.

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
    - `contested` boolean: the changes came in several partitions without TSOs; `contested_keys` decides which is the last
    - `update_only`, `order_unknown` boolean: set by `contested_keys`, here false
    """
    if entries.exact:
        return net_rows(grouped(entries, last_order()), contested=F.lit(False))
    unordered = ~F.col("exact_ts") & ~F.col("keyless") & ~has_trait(Trait.NUMBERS_CHANGES)
    partition = F.when(unordered, partition_number())
    more = [
        F.min(partition).alias("min_partition"),
        F.max(partition).alias("max_partition"),
    ]
    is_contested = F.coalesce(F.col("min_partition") != F.col("max_partition"), F.lit(False))
    return net_rows(grouped(entries, last_order(), *more), contested=is_contested)


def row_entries(changes: DataFrame, row_sets: Iterable[RowSet], *, exact: bool) -> RowEntries:
    """The effects of the changes on row identities. `exact`: all changes have TSOs."""
    sets = list(row_sets)
    canonical = list(dict.fromkeys(item.identity for item in sets if not item.identity.is_plain))
    numbers = {identity: number for number, identity in enumerate(canonical)}
    rows = [
        (
            *(item.source.database, item.source.table, segment, item.step),
            *(dict(item.spellings) or None, list(item.columns)),
            *(numbers.get(item.identity), item.keyless, item.partial, item.soft_delete),
        )
        for item in sets
        for segment in item.segments
    ]
    small = small_frame(
        changes.sparkSession, rows, f"`database` STRING, `table` STRING, segment INT, step INT, {_ROW_SETS}"
    )
    joined = changes.join(F.broadcast(small), ["database", "table", "segment"])
    if any(item.spellings for item in sets):
        joined = joined.withColumns({image: F.expr(_SPELT.format(image=image)) for image in ("before", "after")})
    keyed = joined.withColumns({"after_key": F.expr(_AFTER_KEY), "before_key": F.expr(_BEFORE_KEY)})
    keyed = keyed.withColumn("is_unidentified", F.expr(_IS_UNIDENTIFIED))
    entries = keyed.withColumns(
        {"after_identity": _identity("after_key", canonical), "before_identity": _identity("before_key", canonical)}
    ).select(
        "step",
        "partial",
        "keyless",
        "soft_delete",
        "before",
        F.explode(F.expr(_ENTRIES)).alias("entry"),
        "commit_ts",
        "at",
        "batch_id",
        "topic",
        "partition",
        "offset",
        "row",
        "exact_ts",
        "dialect",
        "op",
        "after",
        F.when(F.col("only_key"), F.struct(*_ORIGIN)).alias("key_only_since"),
    )
    if any(item.soft_delete for item in sets):
        entries = entries.withColumn("after", F.expr(_LAST_IMAGE))
    return RowEntries(entries, any(item.partial for item in sets), exact)


def _identity(texts: str, identities: Sequence[Identity]) -> Column:
    """The canonical texts of the key; texts of a plain identity are canonical already."""
    canonical = F.col(texts)
    for number, identity in enumerate(identities):
        canonical = F.when(F.col("identity") == number, identity.canonical(F.col(texts))).otherwise(canonical)
    return canonical


# the last image of a deleted row: the `before` of an UPDATE of the key may have only the columns that change
_LAST_IMAGE = (
    "CASE WHEN NOT soft_delete OR entry.sign > 0 THEN after WHEN after IS NULL THEN before "
    "WHEN before IS NULL THEN after ELSE map_concat(after, before) END"
)
_ORIGIN = ("commit_ts", "topic", "partition", "offset")
_ORIGIN_TYPE = "STRUCT<commit_ts: BIGINT, topic: STRING, `partition`: INT, `offset`: BIGINT>"
LAST = ("entry.key", "entry.sign", "op", "commit_ts", "topic", "partition", "offset", "dialect")

_SPELT = "if(spellings IS NULL, {image}, transform_keys({image}, (name, text) -> coalesce(spellings[name], name)))"
_AFTER_KEY = "transform(key_columns, name -> after[name])"
# a column that `before` lacks did not change
_BEFORE_KEY = (
    "transform(key_columns, name -> if(after IS NULL OR map_contains_key(before, name), before[name], after[name]))"
)
# The entries of a change. DELETE deletes an identity, INSERT writes one, and an UPDATE that keeps the key writes it. An
# UPDATE of the key (or of any column of a keyless table) deletes one identity and writes another. DataWorks may send an
# UPDATE as two changes, one for each image.
#
# `sign` is 1 for a write and -1 for a delete. `rank` orders entries of one TSO: deletes, then writes of updates, then writes
# of inserts. The delete of an UPDATE has the rank of other deletes, so that two rows can swap keys in one transaction.
# `moved` marks a write by an UPDATE of the key.
_DELETE = "named_struct('key', before_key, 'identity', before_identity, 'sign', -1L, 'rank', 0, 'moved', false)"
_WRITE = (
    "named_struct('key', after_key, 'identity', after_identity, 'sign', 1L, 'rank', if(op = 'UPDATE', 1, 2), "
    "'moved', false)"
)
_MOVE = _WRITE.replace("'moved', false", "'moved', true")
# An UPDATE that does not show which row it changes: it lacks the key (MINIMAL), or for a keyless table the before image.
# `typed_rows` rejects it, because its key is NULL. Its own identity keeps it apart from all others.
_IS_UNIDENTIFIED = (
    "op = 'UPDATE' AND after IS NOT NULL AND CASE WHEN keyless THEN before IS NULL AND "
    f"NOT {trait_sql(Trait.SPLITS_UPDATES)} ELSE partial AND exists(after_key, text -> text IS NULL) END"
)
_UNIDENTIFIED = (
    "named_struct('key', CAST(NULL AS ARRAY<STRING>), 'identity', "
    "array(topic, string(partition), string(offset), string(row)), 'sign', 1L, 'rank', 1, 'moved', false)"
)
_ENTRIES = (
    f"CASE WHEN is_unidentified THEN array({_UNIDENTIFIED}) "
    f"WHEN after IS NULL THEN array({_DELETE}) WHEN before IS NULL THEN array({_WRITE}) "
    f"WHEN NOT keyless AND before_identity <=> after_identity THEN array({_WRITE}) ELSE array({_DELETE}, {_MOVE}) END"
)


def partition_number() -> Column:
    """A number that identifies (topic, partition)."""
    return F.xxhash64("topic", "partition")


def last_order() -> Column:
    """The order of changes of an identity; the greatest is the last."""
    # the two halves of a DataWorks UPDATE have the same commit_ts and may be in different partitions
    exact = F.col("exact_ts")
    ranked = exact | has_trait(Trait.SPLITS_UPDATES)
    rank = F.when(ranked, F.col("entry.rank")).otherwise(F.lit(0))
    # with an exact TSO the position only orders copies of a change. The first copy counts
    batch = F.when(exact, -F.col("batch_id"))
    offset = F.when(exact, -F.col("offset")).otherwise(F.col("offset"))
    # a copy with all columns counts before one with the handle key only, whichever came first
    has_columns = F.col("key_only_since").isNull()
    time = F.when(~has_trait(Trait.IN_LOG_ORDER), F.col("commit_ts"))
    return F.struct(time, rank, has_columns, batch, "topic", "partition", offset, "row", "entry.rank")


def grouped(entries: RowEntries, order: Column, *more: Column) -> DataFrame:
    """One row per identity: `last` (`LAST` and `after` by this order), `replaces_row`, `moved`, `key_only_since`, `delta`,
    `more`."""
    if not entries.partial:
        return _last_images(entries.frame, order, more)
    full, partial = (entries.frame.where(condition) for condition in ("NOT partial", "partial"))
    return _last_images(full, order, more).unionByName(_folded_images(partial, order, more))


def _last_images(entries: DataFrame, order: Column, more: Sequence[Column]) -> DataFrame:
    """`grouped` for changes that have all columns: the last image is the row."""
    return (
        _by_identity(entries)
        .agg(F.max_by(F.struct(*LAST, "after"), order).alias("last"), _delta(), *more)
        .withColumns(
            {
                "replaces_row": F.lit(True),
                "moved": F.lit(False),
                "key_only_since": F.lit(None).cast(_ORIGIN_TYPE),
            }
        )
    )


def _folded_images(entries: DataFrame, order: Column, more: Sequence[Column]) -> DataFrame:
    """`grouped` for changes that may lack columns: applies all changes of an identity in order."""
    changes = F.array_sort(
        F.collect_list(
            F.struct(
                order.alias("order"),
                "entry.sign",
                "entry.moved",
                "soft_delete",
                "op",
                "key_only_since",
                F.map_entries("after").alias("image"),
            )
        )
    )
    folded = F.aggregate(changes.alias("changes"), _no_row(), _apply_change)
    return (
        _by_identity(entries)
        .agg(F.max_by(F.struct(*LAST), order).alias("last"), folded.alias("fold"), _delta(), *more)
        .withColumns(
            {
                "last": F.col("last").withField("after", F.col("fold.after")),
                "replaces_row": F.col("fold.replaces_row"),
                "moved": F.col("fold.moved"),
                "key_only_since": F.col("fold.key_only_since"),
            }
        )
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
    return F.when((change["sign"] < 0) & ~change["soft_delete"], _no_row()).otherwise(new_row)


def _no_row() -> Column:
    return F.expr(
        "named_struct('after', CAST(NULL AS MAP<STRING, STRING>), 'replaces_row', false, 'moved', false, "
        f"'key_only_since', CAST(NULL AS {_ORIGIN_TYPE}))"
    )


def _by_identity(entries: DataFrame) -> GroupedData:
    return entries.groupBy("step", "keyless", F.col("entry.identity").alias("identity"))


def _delta() -> Column:
    return F.sum("entry.sign").alias("delta")


def net_rows(
    last_changes: DataFrame,
    *,
    contested: Column | None = None,
    update_only: Column | None = None,
    order_unknown: Column | None = None,
) -> DataFrame:
    """The columns of `net_changes` for the rows of `grouped`."""
    no = F.lit(False)
    contested = no if contested is None else contested
    return last_changes.select(
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
        "replaces_row",
        "moved",
        "key_only_since",
        contested.alias("contested"),
        (no if update_only is None else update_only).alias("update_only"),
        (no if order_unknown is None else order_unknown).alias("order_unknown"),
    )
