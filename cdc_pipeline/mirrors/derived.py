"""Columns that a pipeline computes of those of a mirror (`computed` in its file): what is said of them without Spark.

In the code they are called derived: what upstream itself computes (GENERATED) is called computed there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_pipeline.schemas.spark_expressions import SparkExpression, spark_expression
from cdc_pipeline.schemas.spark_type_names import named_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql.types import DataType

    from cdc_pipeline.mirrors.state import MirrorState
    from cdc_pipeline.mirrors.steps import ChangeColumns, ColumnOrigin

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


def computed_anew(step: ChangeColumns, is_changed: Callable[[ColumnOrigin], bool]) -> list[DerivedColumn]:
    """The columns whose values may be others after the step in rows that are there: new ones, and those of columns that
    came, went or changed. `is_changed` tells whether the step gives a kept column other values."""
    before = {column.name: column for column in step.before.derived_shown}
    origins = {origin.after.name: origin for origin in step.origins}
    old_masks, new_masks = dict(step.before.masks), dict(step.state.masks)

    def is_another(name: str) -> bool:
        old, new = step.before.schema.find(name), step.state.schema.find(name)
        if old is None or new is None:
            return old is not new
        origin = origins[new.name]
        return (
            origin.before is None
            or origin.before.name != old.name
            or old_masks.get(old.name) != new_masks.get(new.name)
            or step.before.column_type(old) != step.state.column_type(new)
            or (new.generated is not None and old.expression != new.expression)
            or is_changed(origin)
        )

    return [
        column
        for column in step.state.derived_shown
        if before.get(column.name) != column or any(map(is_another, column.expression.names))
    ]


def loses_derived(step: ChangeColumns) -> bool:
    """Whether files have a column which is there no more under its name and type."""
    return bool({_field(column) for column in step.before.derived_shown} - {*map(_field, step.state.derived_shown)})


def keeps_field(step: ChangeColumns, column: DerivedColumn) -> bool:
    """Whether files may have the column from before the step."""
    return _field(column) in {_field(other) for other in step.before.derived_shown}


def _field(column: DerivedColumn) -> tuple[str, str]:
    return column.name, column.type


def without_values(state: MirrorState) -> dict[str, str]:
    """Of the mirror's derived columns those that have no values, or are not there, each with the reason in words."""
    shown = set(state.derived_shown)
    found = {}
    for column in state.derived:
        missing = column.expression.missing(state.schema.column_names)
        if column not in shown:
            found[column.name] = "is not there: the mirror has a column of that name which is not computed"
        elif missing:
            found[column.name] = f"is NULL: there is no column {', '.join(missing)}"
    return found
