"""What ALTER TABLE of one table does to the columns of a merged mirror, and to the values of that table's rows in them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mysql.types.wider_types import holds_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_pipeline.mysql.model.table import Column, ColumnOrigin, TableName, TableSchema


def empty_column(column: Column) -> Column:
    """The column as it is while no row has a value in it."""
    return replace(column, nullable=True, default=None, generated=None, expression=None)


def moved_columns(origins: Sequence[ColumnOrigin]) -> list[ColumnOrigin]:
    """The columns that get a value in rows that are there: another's, or a default."""
    return [
        origin
        for origin in origins
        if (
            origin.after.generated is None and not _starts_null(origin.after)
            if origin.before is None
            else origin.before.name.casefold() != origin.after.name.casefold()
        )
    ]


def _starts_null(column: Column) -> bool:
    """Whether rows that are there have NULL in the column when it is added."""
    default = column.default
    return column.nullable if default is None else default.kind == "literal" and default.value is None


def added_again(before: TableSchema, origins: Sequence[ColumnOrigin]) -> list[str]:
    """Columns that a statement drops and adds anew, without a value."""
    return [
        origin.after.name
        for origin in origins
        if origin.before is None and before.find(origin.after.name) is not None and _starts_null(origin.after)
    ]


def unsure_values(name: TableName, origins: Sequence[ColumnOrigin], target: TableSchema, *, alone: bool) -> list[Gap]:
    """The gaps of columns of which the older rows of one table may have other values, because the others have it otherwise
    still. `target` is the mirror's definition after the statement."""
    gaps = []
    for origin in origins:
        after, before, merged = origin.after, origin.before, target.find(origin.after.name)
        computed = after.generated is not None and (before is None or before.expression != after.expression)
        if computed and merged is not None and merged.generated is None:
            words = "what upstream computes is not here for rows that were there"
            gaps.append(Gap(GapKind.UNSURE_FORMULA, words, after.name, example=str(name)))
        elif before is None or merged is None or alone or before.name != after.name:
            continue
        elif not holds_values(after.type, before.type) and merged.type != after.type:
            words = (
                f"{before.type} became {after.type} while it is {merged.type} here, values that were there may not be "
                "upstream's"
            )
            gaps.append(Gap(GapKind.UNSURE_CONVERSION, words, after.name, example=str(name)))
    return gaps
