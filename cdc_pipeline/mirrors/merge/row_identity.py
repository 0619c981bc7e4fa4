"""What makes two texts of a key, or of a whole row, the same: the values that they have in the mirror.

Encoders spell one value in several ways: `7` and `07`, `1.0` and `1.00`, a label and its number, bytes with and without the
zeros at their end. The merge compares typed values, so that changes are folded by them, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DoubleType, FloatType, StringType, TimestampType

from cdc_pipeline.mysql.model.table import TEXT_TYPES
from cdc_pipeline.mysql.types.spark_types import spark_type, zero_date
from cdc_pipeline.mysql.types.typed_cells import typed_cell

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

    from cdc_pipeline.mysql.model.table import Column
    from cdc_pipeline.mysql.types.typed_cells import Wires

_BAD = "\0"
"""Before a text that its type cannot hold: no value has one."""


@dataclass(frozen=True)
class Identity:
    """By which columns rows are the same. `wires` are the dialects that they come in, each with how it sends these columns;
    `keyless`: the columns are all that the table has, and rows are the same where the mirror shows the same."""

    columns: tuple[Column, ...]
    wires: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    time_zone: str
    keyless: bool

    @staticmethod
    def by(columns: tuple[Column, ...], wires: Wires, time_zone: str, *, keyless: bool) -> Identity:
        names = {column.name for column in columns}
        sent = tuple(
            (dialect, tuple(sorted((name, wire) for name, wire in found.items() if name in names)))
            for dialect, found in wires
        )
        return Identity(columns, sent, time_zone, keyless)

    @property
    def is_plain(self) -> bool:
        """Whether texts are the same only where they are equal to the letter."""
        return not any(sent for _, sent in self.wires) and all(
            column.type.base in TEXT_TYPES for column in self.columns
        )

    def of(self, texts: SparkColumn) -> SparkColumn:
        """The array of texts as one that is equal for rows that are the same. Over `dialect`."""
        return F.array(*(self._one(F.get(texts, F.lit(place)), column) for place, column in enumerate(self.columns)))

    def _one(self, text: SparkColumn, column: Column) -> SparkColumn:
        cell = typed_cell(text, column, self.time_zone, tuple((dialect, dict(sent)) for dialect, sent in self.wires))
        target = spark_type(column.type)
        if isinstance(target, BinaryType):
            shown = F.hex(cell)
        elif isinstance(target, TimestampType):
            shown = F.unix_micros(cell).cast("string")
        elif isinstance(target, (FloatType, DoubleType)):
            shown = (cell + F.lit(0.0).cast(target)).cast("string")  # -0 is 0
        elif isinstance(target, StringType):
            shown = cell
        else:
            shown = cell.cast("string")
        # of a row without a key the mirror shows NULL in its place; a key is told by what upstream has
        no_date = F.lit(None).cast("string") if self.keyless else _without_zeros(text)
        return F.when(zero_date(text, column.type), no_date).otherwise(F.coalesce(shown, F.concat(F.lit(_BAD), text)))


def _without_zeros(text: SparkColumn) -> SparkColumn:
    """The text without the zeros at the end of its fraction."""
    return F.regexp_replace(text, r"(?:\.0*|(\.\d*[1-9])0+)\z", "$1")
