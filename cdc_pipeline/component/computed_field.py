"""What a pipeline's file says of columns that its mirrors have of others: the field `computed`."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import ConfigDict, Field

from cdc_pipeline.component.json_schema import Described
from cdc_pipeline.mirrors.model.computed_columns import DerivedColumn, DerivedRules
from cdc_pipeline.mirrors.model.state import TRACE_NAMES
from cdc_pipeline.mirrors.settings.table_patterns import require_pattern


class ComputedColumn(Described):
    """A column that mirrors have beside upstream's, computed of those for each row."""

    model_config = ConfigDict(extra="forbid")

    type: Annotated[
        str,
        Field(
            description="Its type in Spark SQL: boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), "
            "string, binary, date, timestamp, timestamp_ntz, or array<…> of one."
        ),
    ]
    sql: Annotated[
        str,
        Field(
            description="An expression of Spark SQL over upstream's columns as the mirror has them, of one row and always "
            "the same of the same values. Where it fails the column is NULL."
        ),
    ]


ComputedColumns: TypeAlias = dict[str, dict[str, ComputedColumn]]


def checked_computed(value: ComputedColumns) -> ComputedColumns:
    """The field as it was given. Raises ValueError where a pattern or a column is none."""
    for pattern, columns in value.items():
        require_pattern(pattern)
        if not columns:
            raise ValueError(f"{pattern}: no column is named: column: {{type: …, sql: …}} is expected")
        names = {name.casefold() for name in columns}
        if len(names) < len(columns):
            raise ValueError(f"{pattern}: {', '.join(columns)}: each column is expected once, case does not count")
        for name, column in columns.items():
            if not name.strip():
                raise ValueError(f"{pattern}: {name!r} is no column")
            if name.casefold() in TRACE_NAMES:
                raise ValueError(f"{pattern}.{name}: this is a column of metadata_columns: another name is expected")
            try:
                references = DerivedColumn(name, column.type, column.sql).expression.names
            except ValueError as error:
                raise ValueError(f"{pattern}.{name}: {error}") from None
            for other in references:
                if other.casefold() in TRACE_NAMES or other.casefold() in names:
                    raise ValueError(
                        f"{pattern}.{name}: {column.sql!r} refers to {other}, which is computed itself or one of "
                        "metadata_columns: upstream's columns are expected"
                    )
    return value


def computed_rules(value: ComputedColumns) -> DerivedRules:
    """The field as `ColumnRules` has it."""
    return tuple(
        (pattern, tuple(DerivedColumn(name, column.type, column.sql) for name, column in columns.items()))
        for pattern, columns in value.items()
    )
