"""What a pipeline's file says of the columns of its mirrors: how it is written there, and the rules that it declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cdc_pipeline.component.source_field import filled_in
from cdc_pipeline.mirrors.model.masks import HASH, NULL, Mask
from cdc_pipeline.mirrors.model.state import TRACE_NAMES
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.table_patterns import require_pattern
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.sources.kafka.secret_text import SecretText

if TYPE_CHECKING:
    from collections.abc import Mapping

    import dagster as dg

Masks: TypeAlias = "dict[str, dict[str, str | None]]"
_SHORTEST_SALT = 16

NO_METADATA = "none"


def resolved_metadata(context: dg.ResolutionContext, value: list[str] | str) -> list[str]:
    """The field `metadata_columns` as a file has it."""
    return [str(name) for name in listed_metadata(context.resolve_value(value))]


def listed_metadata(value: object) -> list[object]:
    """The field's value as a list. Raises ValueError where it is none."""
    if value == NO_METADATA:
        return []
    if not isinstance(value, (list, tuple)):
        raise ValueError(
            f"metadata_columns: {value!r} is no list: some of {', '.join(TRACE_NAMES)}, or none is expected"
        )
    return list(value)


def checked_metadata(value: list[str]) -> list[str]:
    """The names in the mirrors' order. Raises ValueError where one is unknown or stands twice."""
    for name in value:
        if name not in TRACE_NAMES:
            raise ValueError(f"{name!r} is no metadata column: {', '.join(TRACE_NAMES)} are expected, or none")
    if len(set(value)) < len(value):
        raise ValueError(f"{value!r}: each column is expected once")
    return [name for name in TRACE_NAMES if name in value]


def checked_masks(value: Masks) -> Masks:
    """The field `mask` as it was given. Raises ValueError where a pattern, a column or a mask is none."""
    for pattern, columns in value.items():
        require_pattern(pattern)
        if not columns:
            raise ValueError(f"{pattern}: no column is named: column: hash, or column: null is expected")
        for column, how in columns.items():
            if not column:
                raise ValueError(f"{pattern}: {column!r} is no column")
            # YAML reads a null without quotes as nothing
            if how not in (HASH, NULL, None):
                raise ValueError(f"{pattern}.{column}: {how!r} is no mask: {HASH} or {NULL} is expected")
    return value


def mask_rules(value: Masks) -> tuple[tuple[str, tuple[tuple[str, Mask], ...]], ...]:
    """The field `mask` as `ColumnRules` has it."""
    return tuple(
        (pattern, tuple((column, HASH if how == HASH else NULL) for column, how in columns.items()))
        for pattern, columns in value.items()
    )


def resolved_salt(context: dg.ResolutionContext, value: str) -> SecretText:
    """The field `mask_salt` with the environment filled in. The errors do not show it."""
    if not isinstance(value, str):
        raise ValueError("mask_salt: a text is expected")  # as pydantic's validators raise it
    try:
        return SecretText(filled_in(context, value))
    except Exception as error:
        raise ValueError(f"mask_salt cannot be filled in: {error}") from None


def checked_salt(value: str, masks: Masks | None) -> SecretText:
    """The salt. Raises ValueError, which does not show it, where it is too short, or missing where there are masks."""
    if masks and not value:
        raise ValueError(
            "it is missing: mask needs one. A variable of the environment is expected, set to a long random text"
        )
    if value and len(value) < _SHORTEST_SALT:
        raise ValueError(f"it is too short: {_SHORTEST_SALT} characters or more are expected, chosen at random")
    return SecretText(value)


def check_masked_keys(masks: Masks, keys: Mapping[str, list[str]]) -> None:
    """Raises ValueError where a column of a declared key is to be NULL: rows could not be told apart."""
    rules = ColumnRules(masks=mask_rules(masks))
    for table, columns in keys.items():
        database, _, name = table.partition(".")
        for column in columns:
            if rules.mask_of(TableName(database, name), column) == NULL:
                raise ValueError(f"{table}.{column} is part of a key (keys): it can be masked as {HASH}, not as {NULL}")
