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

from cdc_pipeline.dialects.traits import Trait, dialect_has_trait, has_trait
from cdc_pipeline.mirrors.merge.computed_values import ComputedValues
from cdc_pipeline.mirrors.model.state import METADATA, MirrorState
from cdc_pipeline.mysql.expressions.translation import translate_assignment
from cdc_pipeline.mysql.model.quoted_names import quoted, unused_name
from cdc_pipeline.mysql.model.table import TEXT_TYPES, MySqlType, TableSchema
from cdc_pipeline.mysql.model.table import Column as UpstreamColumn
from cdc_pipeline.mysql.types.damaged_text import damaged_text
from cdc_pipeline.mysql.types.local_times import ambiguous_columns
from cdc_pipeline.mysql.types.spark_types import is_unparsed, is_zero_date
from cdc_pipeline.mysql.types.wire_values import Encodings, typed_cell
from cdc_pipeline.spark.jvm import balanced

_NO_BEFORE_IMAGE = {"column": None, "text": None, "type": "the row before the update, for a table without a key"}
_MAY_BE_NULL_TEXT = TEXT_TYPES | {"json", "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
"""Types with the value `null`, whose text is not JSON's null."""
_ZERO_DATE = r"^0000-00-00(?: 00:00:00(?:\.0+)?)?\z"


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

    def may_have(self, trait: Trait) -> bool:
        """Whether a dialect of the rows has the trait."""
        return any(dialect_has_trait(dialect, trait) for dialect, _ in self.encodings)


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
    - `ambiguous_times`: array as returned by `local_times.ambiguous_columns`.
    """
    key = {name: index for index, name in enumerate(target.key)}
    masked = {name for name, _ in target.state.masks}
    cells = [
        _cell(column, target, key_index=key.get(column.name), is_masked=column.name in masked)
        for column in target.schema.columns
    ]
    replaces_row = balanced(operator.and_, (cell.has for cell in cells if cell.has is not None), F.lit(True))
    is_complete = balanced(operator.and_, (cell.is_sent for cell in cells if cell.is_sent is not None), F.lit(True))
    has_full_image = F.when(F.col("deleted"), replaces_row).otherwise(F.col("key_only_since").isNull() | is_complete)
    ambiguous = ambiguous_columns((cell.sent for cell in cells), target.time_zone)
    damaged = [cell.damaged for cell in cells if cell.damaged is not None]
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
        balanced(operator.add, (cell.zero_dates for cell in cells), F.lit(0)).alias("zero_dates"),
        _texts(damaged).alias("damaged"),
        (_texts(()) if ambiguous is None else ambiguous).alias("ambiguous_times"),
        "key",
        "after",
    )


@dataclass(frozen=True)
class _Cell:
    """Expressions of one column over `net`."""

    value: Column
    bad: Column
    """(column, text, type) if the type cannot hold the text, else NULL."""
    zero_dates: Column
    """1 if the value is NULL because no calendar has the date, else 0."""
    sent: tuple[str, Column, MySqlType]
    """For `ambiguous_columns`: name, text and type. Of a deleted row only the key has a text."""
    damaged: Column | None
    """The column's name if the encoder damaged its text, else NULL. None: it damages no text of this type."""
    is_sent: Column | None
    """Whether `after` has the column. None: all rows have it."""
    has: Column | None
    """False if the mirror's value stays or, with `moved`, the value is unknown. None: all rows have the column."""


def _cell(column: UpstreamColumn, target: Target, *, key_index: int | None, is_masked: bool) -> _Cell:
    name, kind, deleted = column.name, column.type, F.col("deleted")
    if key_index is None:
        text = _with_null_text(F.col("after")[name], column, target, F.map_contains_key("after", F.lit(name)))
    else:
        text = F.get("key", F.lit(key_index))
        if target.keyless:
            text = _with_null_text(text, column, target, F.col("key").isNotNull())
    value = typed_cell(text, column, target.time_zone, target.encodings)
    if (default := target.absent.get(name)) is not None:
        is_inserted = F.col("replaces_row") & ~F.col("moved") & has_trait(Trait.ABSENT_IS_DEFAULT)
        lacks = is_inserted & ~F.map_contains_key("after", F.lit(name))
        value = F.when(F.coalesce(lacks, F.lit(False)), default).otherwise(value)
    is_sent = F.coalesce(F.map_contains_key("after", F.lit(name)), F.lit(False)) if name in target.absent else None
    damaged = damaged_text(text, kind, target.schema.charset) if target.may_have(Trait.READS_TEXT_AS_UTF8) else None
    if damaged is not None:
        damaged = F.when(damaged & (has_trait(Trait.READS_TEXT_AS_UTF8) & ~deleted), F.lit(name))
    return _Cell(
        value,
        _bad(column, text, value, in_key=key_index is not None, keyless=target.keyless, is_masked=is_masked),
        F.when(is_zero_date(text, kind) & ~deleted, 1).otherwise(0),
        (name, F.when(~deleted, text) if key_index is None else text, kind),
        damaged,
        is_sent,
        None if is_sent is None else (F.col("replaces_row") & ~F.col("moved")) | is_sent,
    )


def _with_null_text(text: Column, column: UpstreamColumn, target: Target, is_sent: Column) -> Column:
    """The text of the column, `null` if it is NULL in a row of TiDB although the column is NOT NULL.

    TiCDC's new architecture sent the text and the JSON document `null` as JSON null until January 2026
    (pingcap/ticdc#3958). `is_sent`: whether the row has the column.
    """
    if (
        not target.may_have(Trait.FROM_TIDB)
        or column.nullable
        or column.expression is not None
        or column.type.base not in _MAY_BE_NULL_TEXT
    ):
        return text
    return F.when(text.isNull() & is_sent & has_trait(Trait.FROM_TIDB), F.lit("null")).otherwise(text)


def _bad(
    column: UpstreamColumn, text: Column, value: Column, *, in_key: bool, keyless: bool, is_masked: bool
) -> Column:
    failed, expected = is_unparsed(text, value, column.type), F.lit(str(column.type))
    if in_key and not keyless:
        # a key may have one date that no calendar has: the zero date, which the mirror stores as NULL
        not_a_key = text.isNull() | (is_zero_date(text, column.type) & ~text.rlike(_ZERO_DATE))
        failed, expected = failed | not_a_key, F.when(not_a_key, F.lit("a key")).otherwise(expected)
    shown = F.when(text.isNotNull(), F.lit("a masked value")) if is_masked else text
    detail = F.struct(F.lit(column.name).alias("column"), shown.alias("text"), expected.alias("type"))
    # a deleted row needs its key only: if the mirror keeps the row, other unreadable values are NULL
    return F.when(failed if in_key else failed & ~F.col("deleted"), detail)


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
