"""Canonical texts of keys, equal for texts of one value.

Encoders write one value in several ways: `7` and `07`, `1.0` and `1.00`, a label and its number, bytes with and without
trailing zeros. The merge compares typed values, so net changes must group by them too.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DoubleType, FloatType, StringType, TimestampType

from cdc_pipeline.mysql.model.table import TEXT_TYPES, Column
from cdc_pipeline.mysql.types.spark_types import is_zero_date, spark_type
from cdc_pipeline.mysql.types.wire_values import Encodings, encodings_of, typed_cell

_BAD = "\0"
"""Prefix of a text that its type cannot hold. No canonical text starts with it."""


@dataclass(frozen=True)
class Identity:
    """The columns that identify a row, and how messages encode them."""

    columns: tuple[Column, ...]
    encodings: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    """The dialects of the rows, each with its encoding of these columns (`mysql.types.wire_values`)."""
    time_zone: str
    """The zone in which the encoder prints TIMESTAMP."""
    keyless: bool
    """The columns are all columns of the table, and rows are equal if their values in the mirror are."""

    @staticmethod
    def for_columns(columns: tuple[Column, ...], wires: Encodings, time_zone: str, *, keyless: bool) -> Identity:
        names = {column.name for column in columns}
        encodings = tuple(
            (dialect, tuple(sorted((name, encoding) for name, encoding in sent.items() if name in names)))
            for dialect, sent in wires
        )
        return Identity(columns, encodings, time_zone, keyless)

    @property
    def is_plain(self) -> bool:
        """Whether all texts are canonical: each value has one text."""
        return not any(sent for _, sent in self.encodings) and all(
            column.type.base in TEXT_TYPES for column in self.columns
        )

    def canonical(self, texts: SparkColumn) -> SparkColumn:
        """The canonical texts of an array of texts. Uses the column `dialect`."""
        return F.array(
            *(self._canonical(F.get(texts, F.lit(index)), column) for index, column in enumerate(self.columns))
        )

    def _canonical(self, text: SparkColumn, column: Column) -> SparkColumn:
        wires = tuple((dialect, dict(sent)) for dialect, sent in self.encodings)
        shown = canonical_text(typed_cell(text, column.type, self.time_zone, encodings_of(column.name, wires)), column)
        # a date that no calendar has is NULL in the mirror, but keys with such dates must stay distinct
        no_date = F.lit(None).cast("string") if self.keyless else _without_zeros(text)
        return F.when(is_zero_date(text, column.type), no_date).otherwise(
            F.coalesce(shown, F.concat(F.lit(_BAD), text))
        )


def canonical_text(value: SparkColumn, column: Column) -> SparkColumn:
    """The canonical text of a value of the column."""
    target = spark_type(column.type)
    if isinstance(target, BinaryType):
        return F.hex(value)
    if isinstance(target, TimestampType):
        return F.unix_micros(value).cast("string")
    if isinstance(target, (FloatType, DoubleType)):
        return (value + F.lit(0.0).cast(target)).cast("string")  # -0 is 0
    return value if isinstance(target, StringType) else value.cast("string")


def _without_zeros(text: SparkColumn) -> SparkColumn:
    """The text without trailing zeros of its fraction."""
    return F.regexp_replace(text, r"(?:\.0*|(\.\d*[1-9])0+)\z", "$1")
