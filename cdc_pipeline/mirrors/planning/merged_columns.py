"""The effect of ALTER TABLE of one source table on the columns of its merged mirror, and on the values of its rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mysql.model.table import ColumnOrigin
from cdc_pipeline.mysql.types.wider_types import holds_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cdc_pipeline.mirrors.model.masks import Mask
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mysql.model.table import Column, TableName, TableSchema


def empty_column(column: Column) -> Column:
    """The column while it is NULL in all rows."""
    return replace(column, nullable=True, default=None, generated=None, expression=None)


def moved_columns(origins: Sequence[ColumnOrigin]) -> list[ColumnOrigin]:
    """The columns that get values in existing rows: those of a renamed column, or a default."""
    return [
        origin
        for origin in origins
        if (
            origin.after.generated is None and not _starts_null(origin.after)
            if origin.before is None
            else origin.before.name.casefold() != origin.after.name.casefold()
        )
    ]


def renamed_in_mirror(mirror: MirrorState, moved: Iterable[ColumnOrigin]) -> list[ColumnOrigin]:
    """The columns of `moved` that get the values of another column, as the mirror spells and defines them."""
    found = []
    for origin in moved:
        before = None if origin.before is None else mirror.schema.find(origin.before.name)
        if before is not None:
            found.append(ColumnOrigin(mirror.schema.find(origin.after.name) or origin.after, before))
    return found


def inherited_masks(mirror: MirrorState, moved: Iterable[ColumnOrigin]) -> dict[str, Mask]:
    """The masks of columns that get the values of masked columns, so that a renamed column stays masked."""
    masks = dict(mirror.masks)
    renamed = ((origin.after, origin.before) for origin in renamed_in_mirror(mirror, moved))
    return {after.name: masks[before.name] for after, before in renamed if before is not None and before.name in masks}


def _starts_null(column: Column) -> bool:
    """Whether an added column is NULL in existing rows. A TIMESTAMP without a default may not be (`default_value`)."""
    default = column.default
    if default is None:
        return column.nullable and column.type.base != "timestamp"
    return default.kind == "literal" and default.value is None


def added_again(before: TableSchema, origins: Sequence[ColumnOrigin]) -> list[str]:
    """The columns that a statement drops and adds again without a default."""
    return [
        origin.after.name
        for origin in origins
        if origin.before is None and before.find(origin.after.name) is not None and _starts_null(origin.after)
    ]


def unsure_values(name: TableName, origins: Sequence[ColumnOrigin], target: TableSchema, *, alone: bool) -> list[Gap]:
    """The gaps of columns in which older rows of the source table may differ from upstream, because the mirror's column
    follows the definitions of other source tables.

    target: the mirror's definition after the statement.
    alone: the mirror has no other source table.
    """
    gaps = []
    for origin in origins:
        after, before, merged = origin.after, origin.before, target.find(origin.after.name)
        computed = after.generated is not None and (before is None or before.expression != after.expression)
        if computed and merged is not None and merged.generated is None:
            detail = "older rows lack the values that upstream computes"
            gaps.append(Gap(GapKind.UNSURE_FORMULA, detail, after.name, example=str(name)))
        elif before is None or merged is None or alone or before.name != after.name:
            continue
        elif not holds_values(after.type, before.type) and merged.type != after.type:
            change = f"{before.type} became {after.type}, but the mirror has {merged.type}"
            detail = f"{change}: older values may differ from upstream"
            gaps.append(Gap(GapKind.UNSURE_CONVERSION, detail, after.name, example=str(name)))
    return gaps
