"""Net changes of one step, with their texts converted to the types of the mirror.

A row's image may lack columns, and an absent column is not NULL. An UPDATE without a column leaves it unchanged
(binlog_row_image NOBLOB, MINIMAL). A Canal INSERT without a column means the column's default, because MINIMAL logs only
what the statement set (canal-facts 16). In other cases, such as an UPDATE that moves the row to another key, the value is
unknown: the mirror stores NULL and gets a gap.

A TiCDC row that is too large for a message is sent with its handle key only (ticdc-facts §7). The mirror keeps the earlier
values of its absent columns and gets a gap, unless a copy of the change or a later change of the cut has all columns.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, has_trait
from cdc_pipeline.mirrors.merge.computed_values import ComputedValues
from cdc_pipeline.mirrors.merge.typed_cells import CellKind, TypedCell, typed
from cdc_pipeline.mirrors.model.state import METADATA, MirrorState
from cdc_pipeline.mysql.expressions.translation import translate_assignment
from cdc_pipeline.mysql.model.quoted_names import quoted, unused_name
from cdc_pipeline.mysql.model.table import Column as UpstreamColumn
from cdc_pipeline.mysql.model.table import TableSchema
from cdc_pipeline.mysql.types.wire_values import Encodings
from cdc_pipeline.spark.jvm import balanced

_NO_BEFORE_IMAGE = {"column": None, "text": None, "type": "the row before the update, for a table without a key"}


@dataclass(frozen=True)
class Target:
    """The mirror that rows are written to, how their messages encode them, and which columns they lack."""

    state: MirrorState
    key: tuple[str, ...]
    """Columns that identify a row; all columns if `keyless`."""
    keyless: bool
    computed: ComputedValues | None
    """Values of the mirror's `computed` columns; None if it has none."""
    time_zone: str
    """The zone in which the encoder prints TIMESTAMP."""
    encodings: Encodings
    """The dialects of the rows, each with its encoding of columns (`mysql.types.wire_values`)."""
    absent: Mapping[str, Column | None]
    """Columns that some rows lack, each with its default; None: no known default."""
    generated: Collection[str]
    """Generated columns that some rows lack and that other columns determine."""

    @property
    def schema(self) -> TableSchema:
        return self.state.schema


def value_column(index: int) -> str:
    """The column of `typed_rows` for column `index` of the schema."""
    return f"value_{index}"


def has_column(index: int) -> str:
    """The flag of `typed_rows` for column `index` of the schema."""
    return f"has_{index}"


def typed_rows(net: DataFrame, target: Target) -> DataFrame:
    """The rows of `net` (`net_changes`, one step) with typed values.

    `key`, `after`, `deleted`, `delta`, `counts`, `moved`, `update_only`, `order_unknown`, `key_only_since` and the metadata
    columns stay as they are. Other columns:

    - `value_<i>`: the value of column i of the schema, not masked.
    - `has_<i>` boolean, for absent columns only: false if the mirror's value stays or, with `moved`, the value is unknown.
    - `replaces_row` boolean: true if all `has_<i>` are true.
    - `has_full_image` boolean: false if the row came with its handle key only and `after` lacks an absent column. For a
      deleted row it equals `replaces_row`.
    - `bad`: array of (column, text, type), one for each text that its type cannot hold. Text of masked columns is redacted.
      Without column for an UPDATE of a keyless table that has no before image.
    - `zero_dates` int: number of dates that are NULL because no calendar has them.
    - `damaged`: array of the columns whose text the encoder damaged.
    - `ambiguous_times`: array of `twice:<column>` and `never:<column>` (`local_times.ambiguous_time`).
    """
    cells = [_cell(column, target) for column in target.schema.columns]
    replaces_row = balanced(operator.and_, (cell.has for cell in cells if cell.has is not None), F.lit(True))
    is_complete = balanced(operator.and_, (cell.is_sent for cell in cells if cell.is_sent is not None), F.lit(True))
    has_full_image = F.when(F.col("deleted"), replaces_row).otherwise(F.col("key_only_since").isNull() | is_complete)
    damaged, ambiguous = [], []
    for name, cell in zip(target.schema.column_names, cells, strict=True):
        if cell.is_damaged is not None:
            damaged.append(F.when(cell.is_damaged, F.lit(name)))
        if cell.ambiguous_time is not None:
            ambiguous.append(F.concat(cell.ambiguous_time, F.lit(f":{name}")))
    bad = [cell.bad for cell in cells]
    if target.keyless:
        # otherwise the cells of the key are bad
        unidentified = F.struct(*(F.lit(text).cast("string").alias(name) for name, text in _NO_BEFORE_IMAGE.items()))
        bad.append(F.when(F.col("key").isNull(), unidentified))
    return net.select(
        *(cell.value.alias(value_column(index)) for index, cell in enumerate(cells)),
        *(cell.has.alias(has_column(index)) for index, cell in enumerate(cells) if cell.has is not None),
        replaces_row.alias("replaces_row"),
        "moved",
        "key_only_since",
        has_full_image.alias("has_full_image"),
        *METADATA.names,
        "deleted",
        "delta",
        "counts",
        "update_only",
        "order_unknown",
        F.array_compact(F.array(*bad)).alias("bad"),
        balanced(operator.add, (cell.is_zero_date.cast("int") for cell in cells), F.lit(0)).alias("zero_dates"),
        _texts(damaged).alias("damaged"),
        _texts(ambiguous).alias("ambiguous_times"),
        "key",
        "after",
    )


@dataclass(frozen=True)
class _ColumnCell(TypedCell):
    """The cell of a column that rows may lack; `value` is also that of rows without it."""

    is_sent: Column | None
    """Whether `after` has the column. None: all rows have it."""
    has: Column | None
    """False if the mirror's value stays or, with `moved`, the value is unknown. None: all rows have the column."""


def _cell(column: UpstreamColumn, target: Target) -> _ColumnCell:
    name, key = column.name, () if target.keyless else target.key
    text, is_sent = F.col("after")[name], F.map_contains_key("after", F.lit(name))
    if name in target.key:
        text, is_sent = F.get("key", F.lit(target.key.index(name))), F.col("key").isNotNull()
    kind = CellKind.of(column, target.state, target.encodings, key)
    parts = vars(typed(kind, F.lit(name), text, is_sent, target.time_zone))
    if name not in target.absent:
        return _ColumnCell(**parts, is_sent=None, has=None)
    is_sent = F.coalesce(F.map_contains_key("after", F.lit(name)), F.lit(False))
    starts_row = F.col("replaces_row") & ~F.col("moved")
    if (default := target.absent[name]) is not None:
        lacks = starts_row & has_trait(Trait.ABSENT_IS_DEFAULT) & ~is_sent
        parts["value"] = F.when(lacks, default).otherwise(parts["value"])
    return _ColumnCell(**parts, is_sent=is_sent, has=starts_row | is_sent)


def _texts(items: Collection[Column]) -> Column:
    """The items that are not NULL, as an array of strings."""
    return F.array_compact(F.array(*items).cast("array<string>"))


def with_generated(rows: DataFrame, target: Target) -> DataFrame:
    """`typed_rows` with `target.generated` columns computed where a row lacks them, NULL without `has_full_image`.

    Adds `doubtful`: array of the generated columns whose value may differ from upstream's.
    """
    if not target.generated:
        return rows.withColumn("doubtful", _texts(()))
    schema = target.schema
    own = unused_name("row", schema.column_names)
    cells = {name: value_column(index) for index, name in enumerate(schema.column_names)}
    named = rows.select(F.struct("*").alias(own)).select(
        own, *(F.col(f"{own}.{cell}").alias(name) for name, cell in cells.items())
    )
    doubtful = []
    for column in schema.columns:  # in order: a generated column may use another one that is defined before it
        if column.name not in target.generated:
            continue
        assert column.expression is not None
        computed = translate_assignment(column.expression, column, schema, target.time_zone)
        if computed.doubtful is not None:
            # of a deleted row only the key may be known
            is_known = F.col(f"{own}.has_full_image") & ~F.col(f"{own}.deleted")
            doubtful.append(F.when(F.expr(computed.doubtful) & is_known, F.lit(column.name)))
        named = named.withColumn(column.name, F.coalesce(F.col(quoted(column.name)), F.expr(computed.sql)))
    new = {cells[name]: F.when(F.col(f"{own}.has_full_image"), F.col(quoted(name))) for name in target.generated}
    return named.select(
        *(new.get(name, F.col(f"{own}.{name}")).alias(name) for name in rows.columns),
        _texts(doubtful).alias("doubtful"),
    )
