"""Plans for mirrors that keep deleted rows (`soft_delete`): columns that deletes lack, and the key after an ALTER TABLE."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cdc_pipeline.mirrors.changes.row_groups import RowGroup
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mysql.model.table import Column, ColumnOrigin


def columns_missing_in_deletes(state: MirrorState, key: tuple[str, ...], groups: Sequence[RowGroup]) -> list[Column]:
    """The columns that some deletes lack, for a soft-delete mirror; empty for others."""
    if not state.has_soft_delete or not key:
        return []
    deletes = [{name.casefold() for name in group.columns} for group in groups if not group.has_after]
    return [column for column in state.schema.columns if any(column.name.casefold() not in names for names in deletes)]


def columns_in_no_row(columns: Iterable[Column], groups: Sequence[RowGroup]) -> list[Column]:
    """Those of the columns that no row has, such as virtual columns from TiCDC."""
    present = {name.casefold() for group in groups for name in group.columns}
    return [column for column in columns if column.name.casefold() not in present]


def key_after_alter(key: tuple[str, ...], origins: Iterable[ColumnOrigin]) -> tuple[str, ...]:
    """The soft-delete key under the new column names.

    Empty if a column of it was dropped or changed its type: values that differed may be equal in the new type.
    """
    by_old_name = {origin.before.name: origin for origin in origins if origin.before is not None}
    found = [by_old_name.get(name) for name in key]
    if any(origin is None or origin.before is None or origin.before.type != origin.after.type for origin in found):
        return ()
    return tuple(origin.after.name for origin in found if origin is not None)
