"""The declaration of `computed` columns: name, type and Spark expression. `merge.computed_values` evaluates them.

The code calls them derived columns; "generated" columns are those that upstream computes (GENERATED ALWAYS AS).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql.types import DataType

from cdc_pipeline.spark.sql_expressions import SparkExpression, parse_spark_expression, parse_spark_type

NTZ = "timestamp_ntz"


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """A computed column. Raises ValueError if the type or the expression is invalid."""

    name: str
    type: str
    """Spark type, such as `decimal(12,2)`."""
    sql: str
    """Spark expression over upstream's columns of the row."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", parse_spark_type(self.type).simpleString())
        parse_spark_expression(self.sql)

    @property
    def data_type(self) -> DataType:
        return parse_spark_type(self.type)

    @property
    def expression(self) -> SparkExpression:
        return parse_spark_expression(self.sql)


ComputedRules = tuple[tuple[str, tuple[ComputedColumn, ...]], ...]
"""(pattern on `database.table`, columns). For each column name the first matching entry wins."""


def merged_columns(first: Iterable[ComputedColumn], others: Iterable[ComputedColumn]) -> tuple[ComputedColumn, ...]:
    """`others`, then the columns of `first` that they lack. Of two columns with one name, that of `first` is used."""
    preferred = {column.name.casefold(): column for column in first}
    columns = {column.name.casefold(): preferred.get(column.name.casefold(), column) for column in others}
    return tuple({**columns, **preferred}.values())
