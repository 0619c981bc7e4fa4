"""The typed value of one cell, and what is wrong with its text. The same for rows that have a column of the frame per cell
(`typed_rows`) and for rows whose cells are rows of the frame (`small_rows`)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, dialect_has_trait, has_trait
from cdc_pipeline.mirrors.model.masks import Mask
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mysql.model.table import TEXT_TYPES, MySqlType
from cdc_pipeline.mysql.model.table import Column as UpstreamColumn
from cdc_pipeline.mysql.types.charsets import LOST_BYTE, damaged_text
from cdc_pipeline.mysql.types.local_times import ambiguous_time
from cdc_pipeline.mysql.types.spark_types import is_unparsed, is_zero_date
from cdc_pipeline.mysql.types.wire_values import CellEncodings, Encodings, encodings_of, typed_cell

_MAY_BE_NULL_TEXT = TEXT_TYPES | {"json", "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
"""Types with the value `null`, whose text is not JSON's null."""
_ZERO_DATE = r"^0000-00-00(?: 00:00:00(?:\.0+)?)?\z"


@dataclass(frozen=True)
class CellKind:
    """How a cell is read. Cells of many columns and tables have the same kind."""

    type: MySqlType
    encodings: CellEncodings
    """The dialects of the rows, each with its encoding of the column (`mysql.types.wire_values`)."""
    charset: str | None
    """The default character set of the table."""
    in_key: bool
    """Whether the column identifies the row: one of the key, or any column of a keyless table."""
    keyless: bool
    mask: Mask | None
    may_be_null_text: bool
    """Whether JSON null may be the text `null`, because the column is NOT NULL (pingcap/ticdc#3958)."""

    @staticmethod
    def of(column: UpstreamColumn, state: MirrorState, encodings: Encodings, key: Collection[str]) -> CellKind:
        """The kind of a column of the mirror; `key`: the columns of its key, empty for a keyless table."""
        in_key, keyless = column.name in key or not key, not key
        is_not_null = not column.nullable and column.expression is None and column.type.base in _MAY_BE_NULL_TEXT
        wires = encodings_of(column.name, encodings)
        may_be_null_text = is_not_null and (keyless or not in_key) and _may_have(wires, Trait.FROM_TIDB)
        mask = dict(state.masks).get(column.name)
        return CellKind(column.type, wires, state.schema.charset, in_key, keyless, mask, may_be_null_text)


@dataclass(frozen=True)
class TypedCell:
    """Expressions of one cell. They read the columns `deleted` and `dialect` too."""

    value: Column
    """Not masked."""
    bad: Column
    """(column, text, type) if the type cannot hold the text, else NULL. A masked text is redacted."""
    is_zero_date: Column
    """Whether the value is NULL because no calendar has the date."""
    ambiguous_time: Column | None
    """As returned by `local_times.ambiguous_time`; of a deleted row only the key has a text."""
    is_damaged: Column | None
    """Whether the encoder damaged its text. None: it damages no text of this type."""


def typed(kind: CellKind, name: Column, text: Column, is_sent: Column, time_zone: str) -> TypedCell:
    """The cell `text` of the column `name`. `is_sent`: whether the row has the column."""
    deleted = F.col("deleted")
    if kind.may_be_null_text:
        # TiCDC's new architecture sent the text and the JSON document `null` as JSON null until January 2026
        text = F.when(text.isNull() & is_sent & has_trait(Trait.FROM_TIDB), F.lit("null")).otherwise(text)
    value = typed_cell(text, kind.type, time_zone, kind.encodings)
    damaged = _damaged(kind, text)
    return TypedCell(
        value,
        _bad(kind, name, text, value),
        is_zero_date(text, kind.type) & ~deleted,
        ambiguous_time(text if kind.in_key else F.when(~deleted, text), kind.type, time_zone),
        None if damaged is None else damaged & ~deleted,
    )


def _damaged(kind: CellKind, text: Column) -> Column | None:
    lost, damaged = None, None
    if kind.type.base in TEXT_TYPES and _may_have(kind.encodings, Trait.MARKS_LOST_BYTES):
        lost = text.contains(LOST_BYTE)
    if _may_have(kind.encodings, Trait.READS_TEXT_AS_UTF8):
        damaged = damaged_text(text, kind.type, kind.charset)
    if damaged is None:
        return lost
    damaged = damaged & has_trait(Trait.READS_TEXT_AS_UTF8)
    return damaged if lost is None else damaged | lost


def _may_have(encodings: CellEncodings, trait: Trait) -> bool:
    return any(dialect_has_trait(dialect, trait) for dialect, _ in encodings)


def _bad(kind: CellKind, name: Column, text: Column, value: Column) -> Column:
    failed, expected = is_unparsed(text, value, kind.type), F.lit(str(kind.type))
    if kind.in_key and not kind.keyless:
        # a key may have one date that no calendar has: the zero date, which the mirror stores as NULL
        not_a_key = text.isNull() | (is_zero_date(text, kind.type) & ~text.rlike(_ZERO_DATE))
        failed, expected = failed | not_a_key, F.when(not_a_key, F.lit("a key")).otherwise(expected)
    shown = F.when(text.isNotNull(), F.lit("a masked value")) if kind.mask is not None else text
    detail = F.struct(name.alias("column"), shown.alias("text"), expected.alias("type"))
    # a deleted row needs its key only: if the mirror keeps the row, other unreadable values are NULL
    return F.when(failed if kind.in_key else failed & ~F.col("deleted"), detail)
