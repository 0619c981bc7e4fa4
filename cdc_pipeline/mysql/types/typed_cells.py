"""A message's text as the value of its column, whichever dialect it came in."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F

from cdc_pipeline.mysql.types.wire_values import wire_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

    from cdc_pipeline.mysql.model.table import Column as SchemaColumn

Wires: TypeAlias = "tuple[tuple[str, Mapping[str, str]], ...]"
"""The dialects of some rows, each with how it sends columns (`mysql.types.wire_values`)."""


def typed_cell(text: Column, column: SchemaColumn, time_zone: str, wires: Wires) -> Column:
    """The typed value of a text, over `dialect`; null for a text that has none of the column's values."""
    by_dialect = {dialect: sent.get(column.name) for dialect, sent in wires}
    if len(set(by_dialect.values())) <= 1:
        return wire_value(text, column.type, time_zone, next(iter(by_dialect.values()), None))
    cells = {dialect: wire_value(text, column.type, time_zone, wire) for dialect, wire in by_dialect.items()}
    return F.coalesce(*(F.when(F.col("dialect") == dialect, cell) for dialect, cell in cells.items()))
