"""What a plan says of mirrors that keep what upstream deletes (`soft_delete`): the columns that deletes came without, and
the key by which rows are told apart after columns have changed. `soft_deletes` carries it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cdc_pipeline.mirrors.changes.row_groups import RowGroup
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mysql.model.table import Column, ColumnOrigin


def untold_columns(state: MirrorState, key: tuple[str, ...], groups: Sequence[RowGroup]) -> list[Column]:
    """The columns that deletes came without, where the mirror keeps the rows."""
    if not state.keeps_deleted or not key:
        return []
    told = [{name.casefold() for name in group.columns} for group in groups if not group.images]
    return [column for column in state.schema.columns if any(column.name.casefold() not in names for names in told)]


def brought_by_none(columns: Iterable[Column], groups: Sequence[RowGroup]) -> list[Column]:
    """Those of the columns that no row at all came with, such as TiCDC's virtual ones."""
    brought = {name.casefold() for group in groups for name in group.columns}
    return [column for column in columns if column.name.casefold() not in brought]


def carried_key(key: tuple[str, ...], origins: Iterable[ColumnOrigin]) -> tuple[str, ...]:
    """The names that the columns of a `soft_key` have now; empty where one is gone, or has another type, as which values
    that differed may be equal."""
    now = {origin.before.name: origin for origin in origins if origin.before is not None}
    found = [now.get(name) for name in key]
    if any(origin is None or origin.before is None or origin.before.type != origin.after.type for origin in found):
        return ()
    return tuple(origin.after.name for origin in found if origin is not None)
