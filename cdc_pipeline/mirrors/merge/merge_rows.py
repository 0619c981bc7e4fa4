"""Writes typed rows to their mirror in one commit.

A keyed table takes deletes and upserts by MERGE. A keyless table is a multiset: the net number of each row image is
inserted, or that many equal rows are deleted. An empty mirror takes an append, and so does a keyless one without deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.writes import append_if, append_once
from cdc_pipeline.mirrors.merge.soft_deletes import live_rows, merge_counts
from cdc_pipeline.mirrors.merge.typed_rows import Target, has_column, value_column
from cdc_pipeline.mirrors.model.state import DELETED, METADATA
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.types.spark_types import DATES


@dataclass(frozen=True)
class Merged:
    """Number of rows that one commit changed."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0


def merge_keyed(spark: SparkSession, path: str, rows: DataFrame, target: Target) -> Merged:
    """Deletes and upserts by key. `spark`, also the session of `rows`, is the commit's own one (`delta.commit_session`).

    A row that lacks absent columns keeps the mirror's values of these, and of generated columns, unless it came from
    another key.
    """
    state, names = target.state, target.schema.column_names
    indexes = {name: index for index, name in enumerate(names)}
    flags = {name: has_column(indexes[name]) for name in target.absent}
    if target.absent:
        flags |= dict.fromkeys(target.generated, "replaces_row")
    kept = {
        name: f"CASE WHEN s.{flag} OR s.moved THEN s.{value_column(indexes[name])} ELSE t.{quoted(name)} END"
        for name, flag in flags.items()
    }
    inserted = _inserted_values(target)
    updated = {**inserted, **{quoted(name): value for name, value in kept.items()}}
    if kept:
        updated |= _computed_values(target, kept)
    same_key = _same_key(target)
    merge = DeltaTable.forPath(spark, path).alias("t").merge(rows.alias("s"), same_key)
    if state.has_soft_delete:
        counts = merge_counts(spark.read.format("delta").load(path), rows, same_key)
        is_updated = f"NOT (s.update_only AND t.{DELETED})"
        merge = merge.whenMatchedUpdate(is_updated, set=updated)
        merge = merge.whenNotMatchedInsert("NOT s.update_only", values=inserted)
        return Merged(*counts) if merge.execute().collect() else Merged()
    merge = (
        merge.whenMatchedDelete("s.deleted")
        .whenMatchedUpdate(set=updated)
        .whenNotMatchedInsert(condition="NOT s.deleted AND NOT s.update_only", values=inserted)
    )
    return _merged(merge.execute())


def count_unknown_rows(spark: SparkSession, path: str, rows: DataFrame, target: Target, absent: Collection[str]) -> int:
    """Number of rows that lack one of the `absent` columns, whose earlier value the mirror does not have under their key.

    Rows that were sent with their handle key only are not counted: `apply_rows` reports them.
    """
    names = target.schema.column_names
    has_all = " AND ".join(has_column(names.index(name)) for name in absent)
    partial = rows.where(f"NOT ({has_all}) AND NOT deleted AND key_only_since IS NULL AND size(bad) = 0")
    mirror = live_rows(spark.read.format("delta").load(path), keeps_deleted=target.state.has_soft_delete)
    condition = F.expr(f"NOT s.moved AND {_same_key(target)}")
    return partial.alias("s").join(mirror.alias("t"), condition, "left_anti").count()


def merge_keyless(spark: SparkSession, path: str, rows: DataFrame, target: Target) -> Merged:
    """Inserts `delta` rows of each image, or deletes that many equal rows, the oldest first.

    MERGE cannot delete some of several equal rows. So all rows of such an image are deleted, and those that remain are
    inserted again with their own metadata, in the same commit. Deleted rows of a `soft_delete` mirror, from when the table
    had a key, are ignored.
    """
    schema, metadata = target.schema, target.state.metadata
    images = [value_column(index) for index in range(len(schema.columns))]
    kept = {name: f"kept_{index}" for index, name in enumerate(target.state.kept_columns)}
    deletes = rows.where("delta < 0").select(*images, F.col("delta"))
    numbered = _equal_rows(spark, path, deletes, target, kept)
    remaining = numbered.where("n > -delta").select(*images, *kept.values(), *metadata, F.lit(False).alias("deleted"))
    inserts = (
        rows.where("delta > 0").select(*images, *METADATA.names, F.lit(False).alias("deleted"), _copies()).drop("copy")
    )
    no_metadata = (F.lit(None).cast(field.dataType).alias(field.name) for field in METADATA)
    deleted = deletes.select(*images, *no_metadata, F.lit(True).alias("deleted"))
    source = remaining.unionByName(deleted, allowMissingColumns=True).unionByName(inserts, allowMissingColumns=True)
    values = _inserted_values(target) | {quoted(name): f"s.{cell}" for name, cell in kept.items()}
    condition = "s.deleted AND " + " AND ".join(
        f"t.{quoted(column.name)} <=> s.{name}" for column, name in zip(schema.columns, images, strict=True)
    )
    if target.state.has_soft_delete:
        condition += f" AND NOT t.{DELETED}"
    outcome = (
        DeltaTable.forPath(spark, path)
        .alias("t")
        .merge(source.alias("s"), condition)
        .whenMatchedDelete()
        .whenNotMatchedInsert(condition="NOT s.deleted", values=values)
        .execute()
    )
    return _merged(outcome)


def count_deleted(spark: SparkSession, path: str, rows: DataFrame, target: Target) -> int:
    """How many of the rows that `merge_keyless` is to delete are in the mirror."""
    return _equal_rows(spark, path, rows.where("delta < 0"), target, {}).where("n <= -delta").count()


def _equal_rows(
    spark: SparkSession, path: str, deletes: DataFrame, target: Target, kept: Mapping[str, str]
) -> DataFrame:
    """The rows of the mirror that equal an image of `deletes`, with its `delta` and their number `n` by age, from 1.

    kept: columns of the mirror that no row has → their names in the result.
    """
    metadata = target.state.metadata
    mirror = live_rows(spark.read.format("delta").load(path), keeps_deleted=target.state.has_soft_delete)
    images = [value_column(index) for index in range(len(target.schema.columns))]
    present = mirror.select(
        *(F.col(quoted(column.name)).alias(name) for column, name in zip(target.schema.columns, images, strict=True)),
        *(F.col(quoted(name)).alias(cell) for name, cell in kept.items()),
        *metadata,
    )
    equal = " AND ".join(f"p.{name} <=> d.{name}" for name in images)
    oldest = [F.col(name) for name in metadata] or [F.lit(0)]
    return (
        present.alias("p")
        .join(deletes.alias("d"), F.expr(equal))
        .select(*(F.col(f"p.{name}") for name in (*images, *kept.values(), *metadata)), F.col("d.delta").alias("delta"))
        .withColumn("n", F.row_number().over(Window.partitionBy(*images).orderBy(*oldest)))
    )


def append_rows(
    path: str, rows: DataFrame, target: Target, commit: Commit, accept: Callable[[], bool] | None = None
) -> bool:
    """Appends the rows that exist after all changes to an empty or keyless mirror; with `soft_delete` also those that were
    deleted. `accept` and the result: of `append_if`; None: accepts all."""
    state, names = target.state, target.schema.column_names
    values = {name: value_column(index) for index, name in enumerate(names)}
    computed = {} if target.computed is None else target.computed.over(values)
    if target.keyless:
        existing = rows.where("delta > 0").select("*", _copies()).withColumn("deleted", F.lit(False))
    else:
        existing = rows.where("NOT update_only" if state.has_soft_delete else "NOT deleted AND NOT update_only")
    frame = existing.select(
        *(F.col(cell).alias(name) for name, cell in values.items()),
        *(value.alias(name) for name, value in computed.items()),
        *state.metadata,
        *([F.col("deleted").alias(DELETED)] if state.has_soft_delete else []),
    )
    if accept is not None:
        return append_if(frame, path, commit, accept)
    append_once(frame, path, commit)
    return True


def _inserted_values(target: Target) -> dict[str, str | Column]:
    """Each column of the mirror with its value for a row `s` of `typed_rows`."""
    names, state = target.schema.column_names, target.state
    own: dict[str, str | Column] = {quoted(name): f"s.{value_column(index)}" for index, name in enumerate(names)}
    metadata: dict[str, str | Column] = {quoted(name): f"s.{name}" for name in state.metadata}
    deleted: dict[str, str | Column] = {DELETED: "s.deleted"} if state.has_soft_delete else {}
    return own | _computed_values(target, {}) | metadata | deleted


def _computed_values(target: Target, replaced: Mapping[str, str]) -> dict[str, str | Column]:
    """The `computed` columns of a row `s`; `replaced` are columns with another value than that of `s`, as SQL."""
    if target.computed is None:
        return {}
    cells = {name: f"s.{value_column(index)}" for index, name in enumerate(target.schema.column_names)}
    return {quoted(name): value for name, value in target.computed.over({**cells, **replaced}).items()}


def _same_key(target: Target) -> str:
    """The MERGE condition. A date of a key may be NULL: the zero date, which a mirror cannot store otherwise."""
    columns = {column.name: (index, column) for index, column in enumerate(target.schema.columns)}
    equal = []
    for name in target.key:
        index, column = columns[name]
        operator = "<=>" if column.type.base in DATES else "="
        equal.append(f"t.{quoted(name)} {operator} s.{value_column(index)}")
    return " AND ".join(equal)


def _copies() -> Column:
    return F.explode(F.sequence(F.lit(1), F.col("delta").cast("int"))).alias("copy")


def _merged(outcome: DataFrame) -> Merged:
    """Delta's own counts; zeros if the commit existed already."""
    for row in outcome.collect():
        return Merged(row["num_inserted_rows"], row["num_updated_rows"], row["num_deleted_rows"])
    return Merged()
