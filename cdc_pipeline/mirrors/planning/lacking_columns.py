"""Columns that some rows of a step lack: which keep their value, which follow from others, which are unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.dialects.traits import Trait, trait_of
from cdc_pipeline.mysql.expressions.translation import ExpressionError, assigned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_pipeline.mirrors.changes.row_groups import RowGroup
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mysql.model.table import Column, TableSchema


def partial_columns(schema: TableSchema, key: Sequence[str], groups: Sequence[RowGroup]) -> list[Column]:
    """Columns of the table that some of the rows lack: the merge keeps them where the row is only changed. `key` is what
    identifies a row of the mirror."""
    if not key:
        return []  # a row without a key is known by all of its columns
    return [column for column in _not_brought(schema, groups) if column.generated != "virtual"]


def unknown_columns(state: MirrorState, key: Sequence[str], groups: Sequence[RowGroup]) -> list[Column]:
    """Columns of the table whose values some rows leave unknown. Rows with their handle key only are told of when they are
    merged: then it is known whether others say more of them."""
    if not key:
        return _not_brought(state.schema, groups)
    inserts = [group for group in groups if group.inserts and not group.only_key]
    told = [group for group in inserts if trait_of(group.dialect, Trait.ABSENT_IS_DEFAULT) and not state.inferred]
    untold = [group for group in inserts if group not in told]
    virtual = [column for column in _not_brought(state.schema, groups) if column.generated == "virtual"]
    others = [column for column in _not_brought(state.schema, told) if not column.has_constant_default]
    missing = {*virtual, *others, *_not_brought(state.schema, untold)}
    return [column for column in state.schema.columns if column in missing]


def computed_columns(schema: TableSchema, unknown: Sequence[Column], time_zone: str) -> tuple[Column, ...]:
    """Those of the unknown columns that upstream generates of others by a formula which has its equal here."""
    return tuple(column for column in unknown if _is_computable(column, schema, time_zone))


def _is_computable(column: Column, schema: TableSchema, time_zone: str) -> bool:
    if column.expression is None:
        return False
    try:
        assigned(column.expression, column, schema, time_zone)
    except ExpressionError:
        return False
    return True


def _not_brought(schema: TableSchema, groups: Sequence[RowGroup]) -> list[Column]:
    brought = [{name.casefold() for name in group.columns} for group in groups if group.images]
    return [column for column in schema.columns if any(column.name.casefold() not in names for names in brought)]
