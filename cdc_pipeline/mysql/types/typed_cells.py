"""Converts message text to typed values for rows of several dialects."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F

from cdc_pipeline.mysql.types.wire_values import wire_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

    from cdc_pipeline.mysql.model.table import Column as SchemaColumn

Encodings: TypeAlias = "tuple[tuple[str, Mapping[str, str]], ...]"
"""(dialect, encoding per column) for each dialect of the rows; the encodings are those of `wire_values`."""


def typed_cell(text: Column, column: SchemaColumn, time_zone: str, wires: Encodings) -> Column:
    """The typed value of a text, which depends on the column `dialect`; NULL if it cannot be parsed."""
    by_dialect = {dialect: encodings.get(column.name) for dialect, encodings in wires}
    if len(set(by_dialect.values())) <= 1:
        return wire_value(text, column.type, time_zone, next(iter(by_dialect.values()), None))
    cells = {dialect: wire_value(text, column.type, time_zone, encoding) for dialect, encoding in by_dialect.items()}
    return F.coalesce(*(F.when(F.col("dialect") == dialect, cell) for dialect, cell in cells.items()))
