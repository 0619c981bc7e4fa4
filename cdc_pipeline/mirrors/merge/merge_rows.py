"""Net changes as typed rows of one mirror, and the one commit that lets them in.

A keyed table takes deletes and upserts by MERGE. A table without a key is an exact multiset: the net number of each
row image is added, or so many of the equal rows are taken away. An empty mirror takes a plain append.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta.tables import DeltaTable
from pyspark.sql import Window
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, has_trait, trait_of
from cdc_pipeline.lake.delta import append_once
from cdc_pipeline.mirrors.merge.absent_columns import with_default
from cdc_pipeline.mirrors.merge.soft_deletes import live_rows, soft_counts
from cdc_pipeline.mirrors.model.state import DELETED, TRACE, TRACE_NAMES
from cdc_pipeline.mysql.expressions.translation import assigned
from cdc_pipeline.mysql.model.quoted_names import quoted, unused
from cdc_pipeline.mysql.types.damaged_text import damaged_text
from cdc_pipeline.mysql.types.local_times import odd_columns
from cdc_pipeline.mysql.types.spark_types import DATES, unparsed, zero_date
from cdc_pipeline.mysql.types.typed_cells import typed_cell
from cdc_pipeline.spark.folded import folded

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from cdc_pipeline.lake.delta import Commit
    from cdc_pipeline.mirrors.merge.computed_values import DerivedValues
    from cdc_pipeline.mysql.model.table import TableSchema
    from cdc_pipeline.mysql.types.typed_cells import Wires


_ZERO_DATE = r"^0000-00-00(?: 00:00:00(?:\.0+)?)?\z"
_NOT_OLDER = "coalesce(s.`_commit_ts` >= t.`_commit_ts`, true)"
"""A row has no time where it came from a mirror that has none (EXCHANGE PARTITION, `metadata_columns`)."""


@dataclass(frozen=True)
class Merged:
    """Rows that one commit changed."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True)
class TargetLayout:
    """The columns of the mirror that rows go into.

    `schema` are upstream's, `trace` those of `TRACE` that it has: where it lacks `_commit_ts` rows must come in order
    (`column_rules.check_order`). `derived` are columns that follow from the row as it is after the commit. `kept` are others
    beside upstream's, of which new rows have none. `soft`: the mirror keeps deleted rows (`soft_deletes`).
    """

    schema: TableSchema
    trace: Sequence[str] = TRACE_NAMES
    derived: DerivedValues | None = None
    kept: Sequence[str] = ()
    soft: bool = False

    @property
    def cells(self) -> dict[str, str | Column]:
        """Each column of the mirror, with the value that a row `s` of `typed_rows` has for it."""
        own: dict[str, str | Column] = {
            quoted(column.name): f"s.c{place}" for place, column in enumerate(self.schema.columns)
        }
        beside: dict[str, str | Column] = {quoted(name): f"s.{name}" for name in self.trace}
        return own | self.derived_cells({}) | beside | ({DELETED: "s.deleted"} if self.soft else {})

    def derived_cells(self, others: Mapping[str, str]) -> dict[str, str | Column]:
        """The derived columns of the rows' cells; `others` are columns that have another value than the cell."""
        if self.derived is None:
            return {}
        cells = {name: f"s.c{place}" for place, name in enumerate(self.schema.column_names)}
        return {quoted(name): value for name, value in self.derived.over({**cells, **others}).items()}


def typed_rows(
    net: DataFrame,
    schema: TableSchema,
    key: tuple[str, ...],
    time_zone: str,
    wires: Wires = (),
    *,
    keyless: bool,
    absent: Mapping[str, Column | None] | None = None,
    masked: Collection[str] = (),
) -> DataFrame:
    """`net` (of one step) with its texts as the mirror's types.

    Columns `c0`, `c1`, … in the schema's order, then those of `TRACE`, `deleted`, `delta`, `counts`, `only_if_there`,
    `unsettled` as they came, and: `bad`, an array of
    (column, text, type) for each text that its type cannot hold; `zero_dates`, how many dates are NULL because no
    calendar has them; `lossy`, an array of the columns whose text the encoder has damaged; `odd_times`, an array of
    `local_times.odd_columns`; `key` and `after` as they
    came. `absent` are columns that some rows came without, each with its default: these have a boolean `h0`, `h1`, …,
    false where the mirror's own value stays, and `whole` is false where any of them is so. `told` is false where the row
    came with its handle key only (`bare`, as `net_changes.net_changes` has it) and `after` lacks any of them; of a row
    that is
    `deleted` it is false where any of them is not known. The values are clear, those of `masked` too; but `bad` does not
    tell theirs.
    """
    places = {name: place for place, name in enumerate(key)}
    absent = absent or {}
    typed, bad, zero, lossy, has, flags, texts = [], [], [], [], [], [], []
    brought_columns = []
    may_be_damaged = any(trait_of(dialect, Trait.READS_TEXT_AS_UTF8) for dialect, _ in wires)
    for place, column in enumerate(schema.columns):
        in_key = column.name in places
        text = F.get("key", F.lit(places[column.name])) if in_key else F.col("after")[column.name]
        cell = with_default(typed_cell(text, column, time_zone, wires), column.name, absent.get(column.name))
        # of a deleted row only the key counts
        texts.append((column.name, text if in_key else F.when(~F.col("deleted"), text), column.type))
        if column.name in absent:
            brought = F.coalesce(F.map_contains_key("after", F.lit(column.name)), F.lit(False))
            has.append(F.col("whole") | brought)
            flags.append(has[-1].alias(f"h{place}"))
            brought_columns.append(brought)
        typed.append(cell.alias(f"c{place}"))
        failed, expected = unparsed(text, cell, column.type), F.lit(str(column.type))
        if in_key and not keyless:
            # of dates that no calendar has a mirror can tell one from all others: the zero date, as NULL
            not_a_key = text.isNull() | (zero_date(text, column.type) & ~text.rlike(_ZERO_DATE))
            failed, expected = failed | not_a_key, F.when(not_a_key, F.lit("a key")).otherwise(expected)
        shown = F.when(text.isNotNull(), F.lit("a masked value")) if column.name in masked else text
        detail = F.struct(F.lit(column.name).alias("column"), shown.alias("text"), expected.alias("type"))
        # a deleted row needs its key only: where it is kept, what cannot be read is NULL
        bad.append(F.when(failed if in_key else failed & ~F.col("deleted"), detail))
        zero.append(F.when(zero_date(text, column.type) & ~F.col("deleted"), 1).otherwise(0))
        if may_be_damaged and (damaged := damaged_text(text, column.type, schema.charset)) is not None:
            read_as_utf8 = has_trait(Trait.READS_TEXT_AS_UTF8) & ~F.col("deleted")
            lossy.append(F.when(damaged & read_as_utf8, F.lit(column.name)))
    whole, told = (folded(operator.and_, parts, F.lit(True)) for parts in (has, brought_columns))
    return net.select(
        *typed,
        *flags,
        whole.alias("whole"),
        "bare",
        F.when(F.col("deleted"), whole).otherwise(F.col("bare").isNull() | told).alias("told"),
        *TRACE.names,
        "deleted",
        "delta",
        "counts",
        "only_if_there",
        "unsettled",
        F.array_compact(F.array(*bad)).alias("bad"),
        folded(operator.add, zero, F.lit(0)).alias("zero_dates"),
        F.array_compact(F.array(*lossy).cast("array<string>")).alias("lossy"),
        _texts_or_none(odd_columns(texts, time_zone)).alias("odd_times"),
        "key",
        "after",
    )


def _texts_or_none(texts: Column | None) -> Column:
    return F.expr("CAST(array() AS ARRAY<STRING>)") if texts is None else texts


def with_computed(rows: DataFrame, schema: TableSchema, computed: Collection[str], time_zone: str) -> DataFrame:
    """`rows` of `typed_rows` with these generated columns computed where a row came without them, NULL where it is not
    `told`, and `unsure`, an array of those of which the value is not sure."""
    if not computed:
        return rows.withColumn("unsure", _texts_or_none(None))
    own = unused("row", schema.column_names)
    cells = {column.name: f"c{place}" for place, column in enumerate(schema.columns)}
    named = rows.select(F.struct("*").alias(own)).select(
        own, *(F.col(f"{own}.{cell}").alias(name) for name, cell in cells.items())
    )
    unsure = []
    for column in schema.columns:  # one may be computed of another that is defined before it
        if column.name not in computed:
            continue
        assert column.expression is not None
        found = assigned(column.expression, column, schema, time_zone)
        if found.doubtful is not None:
            # of a row that goes only the key may be known
            known = F.col(f"{own}.told") & ~F.col(f"{own}.deleted")
            unsure.append(F.when(F.expr(found.doubtful) & known, F.lit(column.name)))
        named = named.withColumn(column.name, F.coalesce(F.col(quoted(column.name)), F.expr(found.sql)))
    new = {cells[name]: F.when(F.col(f"{own}.told"), F.col(quoted(name))) for name in computed}
    return named.select(
        *(new.get(name, F.col(f"{own}.{name}")).alias(name) for name in rows.columns),
        F.array_compact(F.array(*unsure).cast("array<string>")).alias("unsure"),
    )


def merge_keyed(
    spark: SparkSession,
    path: str,
    rows: DataFrame,
    layout: TargetLayout,
    key: tuple[str, ...],
    absent: Collection[str] = (),
    computed: Collection[str] = (),
    *,
    in_order: bool = False,
) -> Merged:
    """Deletes and upserts by key. `spark` is the commit's own session (`delta.session_for`), and so is that of `rows`.

    Columns of `absent` keep the mirror's value where a row came without them; those of `computed`, which follow from
    others, where it came without any. `in_order`: the rows are newer than those of the mirror, whatever their `_commit_ts`.
    """
    not_older = "true" if in_order or "_commit_ts" not in layout.trace else _NOT_OLDER
    places = {column.name: place for place, column in enumerate(layout.schema.columns)}
    kept = {
        name: f"CASE WHEN s.{known} THEN s.c{places[name]} ELSE t.{quoted(name)} END"
        for name, known in [*((name, f"h{places[name]}") for name in absent), *((name, "whole") for name in computed)]
    }
    cells = layout.cells
    changed = {quoted(name): cell for name, cell in kept.items()} | (layout.derived_cells(kept) if kept else {})
    same_key = _same_key(layout.schema, key)
    merge = DeltaTable.forPath(spark, path).alias("t").merge(rows.alias("s"), same_key)
    # Below a watermark nothing older can come. Without watermarks a re-delivery may: it must not undo a newer row.
    if layout.soft:
        counts = soft_counts(spark.read.format("delta").load(path), rows, same_key, not_older)
        there = f"{not_older} AND NOT (s.only_if_there AND t.{DELETED})"
        merge = merge.whenMatchedUpdate(there, set={**cells, **changed})
        merge = merge.whenNotMatchedInsert("NOT s.only_if_there", values=cells)
        return Merged(*counts) if merge.execute().collect() else Merged()
    merge = (
        merge.whenMatchedDelete(f"s.deleted AND {not_older}")
        .whenMatchedUpdate(not_older, set={**cells, **changed})
        .whenNotMatchedInsert(condition="NOT s.deleted AND NOT s.only_if_there", values=cells)
    )
    return _merged(merge.execute())


def rows_of_unknown(
    spark: SparkSession,
    path: str,
    rows: DataFrame,
    schema: TableSchema,
    key: tuple[str, ...],
    *,
    soft: bool = False,
) -> int:
    """How many rows say only what differs from a row that the mirror does not have. Those that came with their handle key
    only are told of by themselves."""
    partial = rows.where("NOT whole AND NOT deleted AND bare IS NULL")
    mirror = live_rows(spark.read.format("delta").load(path), keeps_deleted=soft)
    return partial.alias("s").join(mirror.alias("t"), F.expr(_same_key(schema, key)), "left_anti").count()


def _same_key(schema: TableSchema, key: tuple[str, ...]) -> str:
    """NULL is a date's value in a key: the zero date, which a mirror has no other way to hold."""
    return " AND ".join(
        f"t.{quoted(column.name)} {'<=>' if column.type.base in DATES else '='} s.c{place}"
        for name in key
        for place, column in enumerate(schema.columns)
        if column.name == name
    )


def merge_keyless(spark: SparkSession, path: str, rows: DataFrame, layout: TargetLayout) -> Merged:
    """Adds `delta` rows of each image, or takes that many of its equal rows away.

    MERGE cannot take away some of several equal rows, so all rows of such an image go and those that remain come back,
    each with its own trace, in the same commit. The rows taken are the oldest. Rows that the mirror keeps deleted, from when
    the table had a key, are not looked at.
    """
    schema, trace = layout.schema, layout.trace
    mirror = live_rows(spark.read.format("delta").load(path), keeps_deleted=layout.soft)
    images = [f"c{place}" for place in range(len(schema.columns))]
    beside = {name: f"k{place}" for place, name in enumerate(layout.kept)}
    present = mirror.select(
        *(F.col(quoted(column.name)).alias(name) for column, name in zip(schema.columns, images, strict=True)),
        *(F.col(quoted(name)).alias(cell) for name, cell in beside.items()),
        *trace,
    )
    gone = rows.where("delta < 0").select(*images, F.col("delta"))
    equal = " AND ".join(f"p.{name} <=> g.{name}" for name in images)
    oldest = [F.col(name) for name in trace] or [F.lit(0)]
    numbered = (
        present.alias("p")
        .join(gone.alias("g"), F.expr(equal))
        .select(*(F.col(f"p.{name}") for name in (*images, *beside.values(), *trace)), F.col("g.delta").alias("delta"))
        .withColumn("n", F.row_number().over(Window.partitionBy(*images).orderBy(*oldest)))
    )
    left = numbered.where("n > -delta").select(*images, *beside.values(), *trace, F.lit(False).alias("deleted"))
    added = rows.where("delta > 0").select(*images, *TRACE.names, F.lit(False).alias("deleted"), _copies()).drop("copy")
    taken = gone.select(
        *images, *(F.lit(None).cast(field.dataType).alias(field.name) for field in TRACE), F.lit(True).alias("deleted")
    )
    source = left.unionByName(taken, allowMissingColumns=True).unionByName(added, allowMissingColumns=True)
    cells = layout.cells | {quoted(name): f"s.{cell}" for name, cell in beside.items()}
    condition = "s.deleted AND " + " AND ".join(
        f"t.{quoted(column.name)} <=> s.{name}" for column, name in zip(schema.columns, images, strict=True)
    )
    if layout.soft:
        condition += f" AND NOT t.{DELETED}"
    outcome = (
        DeltaTable.forPath(spark, path)
        .alias("t")
        .merge(source.alias("s"), condition)
        .whenMatchedDelete()
        .whenNotMatchedInsert(condition="NOT s.deleted", values=cells)
        .execute()
    )
    return _merged(outcome)


def append_rows(path: str, rows: DataFrame, layout: TargetLayout, commit: Commit, *, keyless: bool) -> None:
    """The rows that are there after all changes, into a mirror that has none; where it keeps deleted rows, also those that
    came and went."""
    schema, derived = layout.schema, layout.derived
    values = (
        {} if derived is None else derived.over({name: f"c{place}" for place, name in enumerate(schema.column_names)})
    )
    if keyless:
        there = rows.where("delta > 0").select("*", _copies()).withColumn("deleted", F.lit(False))
    else:
        there = rows.where("NOT only_if_there") if layout.soft else rows.where("NOT deleted AND NOT only_if_there")
    frame = there.select(
        *(F.col(f"c{place}").alias(column.name) for place, column in enumerate(schema.columns)),
        *(value.alias(name) for name, value in values.items()),
        *layout.trace,
        *([F.col("deleted").alias(DELETED)] if layout.soft else []),
    )
    append_once(frame, path, commit)


def _copies() -> Column:
    return F.explode(F.sequence(F.lit(1), F.col("delta").cast("int"))).alias("copy")


def _merged(outcome: DataFrame) -> Merged:
    """Delta's own counts; none where the commit was already in."""
    for row in outcome.collect():
        return Merged(row["num_inserted_rows"], row["num_updated_rows"], row["num_deleted_rows"])
    return Merged()
