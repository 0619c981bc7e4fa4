"""The fields about tables and their columns: validation, and conversion to `Route` and `ColumnRules`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias, TypeVar

from pydantic import ValidationInfo, field_validator

from cdc_pipeline.component.yaml_model import YamlModel
from cdc_pipeline.mirrors.model.computed_columns import ComputedColumn, ComputedRules
from cdc_pipeline.mirrors.model.masks import HASH, NULL, Mask
from cdc_pipeline.mirrors.model.state import METADATA_COLUMNS
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.selection import Route
from cdc_pipeline.mirrors.settings.table_patterns import require_pattern
from cdc_pipeline.mysql.model.table import TableName

_Patterns = TypeVar("_Patterns", bound=Iterable[str])
Masks: TypeAlias = "dict[str, dict[str, str | None]]"


class RouteRule(YamlModel):
    """Renames the mirrors of the matching tables, or merges the tables into one mirror."""

    match: str
    """Pattern on the upstream database.table."""
    to: str
    """The mirror as database.table; `{database}` and `{table}` are replaced by the upstream names."""
    merge: bool = False
    """Merge matching tables with the same mirror. `_source_database` and `_source_table` name the table of a row and
    are part of the key."""

    _is_a_pattern = field_validator("match")(require_pattern)

    @field_validator("to")
    @classmethod
    def _is_a_template(cls, value: str) -> str:
        return Route("*", value).to

    @property
    def route(self) -> Route:
        return Route(self.match, self.to, self.merge)


def require_patterns(value: _Patterns) -> _Patterns:
    """The value itself. Raises ValueError if one of its patterns is invalid."""
    for pattern in value:
        require_pattern(pattern)
    return value


def require_include(value: list[str]) -> list[str]:
    """The value itself. Raises ValueError if it has no pattern, or an invalid one."""
    if not value:
        raise ValueError('[] includes no table: at least one pattern is expected, such as shop.* (["*"]: all tables)')
    return require_patterns(value)


_SHORTEST_SALT = 16
NO_METADATA = "none"


def validate_metadata(value: object) -> list[str]:
    """The names in the column order of mirrors; `none` is empty. Raises ValueError for unknown or duplicate names."""
    if value == NO_METADATA:
        return []
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{value!r} is not a list: some of {', '.join(METADATA_COLUMNS)}, or none is expected")
    for name in value:
        if name not in METADATA_COLUMNS:
            raise ValueError(f"{name!r} is not a metadata column: {', '.join(METADATA_COLUMNS)} are expected, or none")
    if len(set(value)) < len(value):
        raise ValueError(f"{value!r}: each column is expected once")
    return [name for name in METADATA_COLUMNS if name in value]


def validate_masks(value: Masks, info: ValidationInfo) -> Masks:
    """The unchanged field `mask`. Raises ValueError for an invalid pattern, column or mask, and for a declared key
    with a column masked as NULL, which cannot identify rows."""
    for pattern, columns in value.items():
        require_pattern(pattern)
        if not columns:
            raise ValueError(f"{pattern}: no columns: column: hash or column: null is expected")
        for column, how in columns.items():
            if not column:
                raise ValueError(f"{pattern}: {column!r} is not a column name")
            # YAML parses null without quotes as None
            if how not in (HASH, NULL, None):
                raise ValueError(f"{pattern}.{column}: {how!r} is not a mask: {HASH} or {NULL} is expected")
    rules = ColumnRules(masks=mask_rules(value))
    for table, columns in info.data.get("keys", {}).items():
        database, _, name = table.partition(".")
        for column in columns:
            if rules.mask_for(TableName(database, name), column) == NULL:
                raise ValueError(f"{table}.{column} is part of a key (keys): mask it as {HASH}, not as {NULL}")
    return value


def mask_rules(value: Masks) -> tuple[tuple[str, tuple[tuple[str, Mask], ...]], ...]:
    """The field `mask` in the form of `ColumnRules`."""
    return tuple(
        (pattern, tuple((column, HASH if how == HASH else NULL) for column, how in columns.items()))
        for pattern, columns in value.items()
    )


def validate_salt(value: str, info: ValidationInfo) -> str:
    """The salt. Raises ValueError without the salt if it is too short, or missing although `mask` is set."""
    if info.data.get("mask") and not value:
        raise ValueError("required because mask is set: an environment variable with a long random text is expected")
    if value and len(value) < _SHORTEST_SALT:
        raise ValueError(f"too short: at least {_SHORTEST_SALT} random characters are expected")
    return value


class ComputedField(YamlModel):
    """An additional mirror column, computed from the upstream columns of the same row."""

    type: str
    """Spark SQL type: boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), string, binary, date,
    timestamp, timestamp_ntz, or array<…> of these."""
    sql: str
    """Deterministic Spark SQL expression over the upstream columns of one mirror row. If it fails, the column is
    NULL."""


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
