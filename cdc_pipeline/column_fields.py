"""What a pipeline's file says of the columns of its mirrors: how it is written there, and the rules that it declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.state import TRACE_NAMES

if TYPE_CHECKING:
    import dagster as dg

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
