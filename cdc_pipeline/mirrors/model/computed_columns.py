"""Columns that a pipeline computes of those of a mirror (`computed` in its file): what is said of them without Spark.

In the code they are called derived: what upstream itself computes (GENERATED) is called computed there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_pipeline.spark.sql_expressions import SparkExpression, spark_expression
from cdc_pipeline.spark.sql_types import named_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql.types import DataType


NTZ = "timestamp_ntz"


@dataclass(frozen=True, slots=True)
class DerivedColumn:
    """A column `name` of the Spark type `type`, the value of the Spark expression `sql` over upstream's columns of its row.

    Raises ValueError where the type or the expression is none.
    """

    name: str
    type: str
    sql: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", named_type(self.type).simpleString())
        spark_expression(self.sql)

    @property
    def data_type(self) -> DataType:
        return named_type(self.type)

    @property
    def expression(self) -> SparkExpression:
        return spark_expression(self.sql)

    def as_plain(self) -> list[str]:
        return [self.name, self.type, self.sql]


DerivedRules = tuple[tuple[str, tuple[DerivedColumn, ...]], ...]
"""(pattern on `database.table`, its columns) in order; the first that names a column of a table counts."""


def rules_as_plain(rules: DerivedRules) -> list[list[object]]:
    return [[pattern, [column.as_plain() for column in columns]] for pattern, columns in rules]


def rules_from_plain(plain: Iterable[Sequence[object]]) -> DerivedRules:
    return tuple((str(pattern), columns_from_plain(columns)) for pattern, columns in plain)  # type: ignore[arg-type]


def columns_from_plain(plain: Iterable[Sequence[str]]) -> tuple[DerivedColumn, ...]:
    return tuple(DerivedColumn(name, kind, sql) for name, kind, sql in plain)


def merged(first: Iterable[DerivedColumn], others: Iterable[DerivedColumn]) -> tuple[DerivedColumn, ...]:
    """All columns, those of `first` where both have one of a name: in its place where it is there, else at the end."""
    own = {column.name.casefold(): column for column in first}
    found = {column.name.casefold(): own.get(column.name.casefold(), column) for column in others}
    return tuple({**found, **own}.values())
