"""Row entries: what each row change does to which row. The input of `net_changes`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, trait_sql
from cdc_pipeline.mirrors.merge.row_identity import Identity
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import POSITION
from cdc_pipeline.spark.small_frames import small_frame

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


def row_entries(changes: DataFrame, row_sets: Iterable[RowSet]) -> DataFrame:
    """The effects of the changes on row identities: one row per write or delete of an identity (`_ENTRIES`).

    They have the column `partial` if some changes may lack columns.
    """
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
        *("step", "partial", "keyless", "soft_delete", "before"),
        F.explode(F.expr(_ENTRIES)).alias("entry"),
        *("commit_ts", "at", "batch_id", *POSITION, "row", "exact_ts", "dialect", "op", "after"),
        F.when(F.col("only_key"), F.struct("commit_ts", *POSITION)).alias("key_only_since"),
    )
    if any(item.soft_delete for item in sets):
        entries = entries.withColumn("after", F.expr(_LAST_IMAGE))
    return entries if any(item.partial for item in sets) else entries.drop("partial")


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
    f"NOT {trait_sql(Trait.NUMBERS_CHANGES)} ELSE partial AND exists(after_key, text -> text IS NULL) END"
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
