"""The field `computed`: validation, and conversion to `ColumnRules`."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from cdc_pipeline.component.json_schema import YamlModel
from cdc_pipeline.mirrors.model.computed_columns import ComputedColumn, ComputedRules
from cdc_pipeline.mirrors.model.state import METADATA_COLUMNS
from cdc_pipeline.mirrors.settings.table_patterns import require_pattern


class ComputedField(YamlModel):
    """An additional mirror column, computed from the upstream columns of the same row."""

    type: Annotated[
        str,
        Field(
            description="Spark SQL type: boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), "
            "string, binary, date, timestamp, timestamp_ntz, or array<…> of these."
        ),
    ]
    sql: Annotated[
        str,
        Field(
            description="Deterministic Spark SQL expression over the upstream columns of one mirror row. If it fails, the "
            "column is NULL."
        ),
    ]


ComputedColumns: TypeAlias = dict[str, dict[str, ComputedField]]


def validate_computed(value: ComputedColumns) -> ComputedColumns:
    """The unchanged field. Raises ValueError for an invalid pattern, column, type or expression."""
    for pattern, columns in value.items():
        require_pattern(pattern)
        if not columns:
            raise ValueError(f"{pattern}: no columns: column: {{type: …, sql: …}} is expected")
        names = {name.casefold() for name in columns}
        if len(names) < len(columns):
            raise ValueError(f"{pattern}: {', '.join(columns)}: duplicate columns (names are case-insensitive)")
        for name, column in columns.items():
            if not name.strip():
                raise ValueError(f"{pattern}: {name!r} is not a column name")
            if name.casefold() in METADATA_COLUMNS:
                raise ValueError(f"{pattern}.{name}: the name is used by metadata_columns: another name is expected")
            try:
                references = ComputedColumn(name, column.type, column.sql).expression.column_names
            except ValueError as error:
                raise ValueError(f"{pattern}.{name}: {error}") from None
            for other in references:
                if other.casefold() in METADATA_COLUMNS or other.casefold() in names:
                    raise ValueError(
                        f"{pattern}.{name}: {column.sql!r} refers to {other}, a computed or metadata column: "
                        "only upstream columns are allowed"
                    )
    return value


def computed_rules(value: ComputedColumns) -> ComputedRules:
    """The field in the form of `ColumnRules`."""
    return tuple(
        (pattern, tuple(ComputedColumn(name, column.type, column.sql) for name, column in columns.items()))
        for pattern, columns in value.items()
    )
