"""Which columns of a mirror identify a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc_pipeline.schemas.table import TableName, TableSchema


def key_columns(name: TableName, schema: TableSchema, declared: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The key of the definition, else the one `declared` by `database.table`; empty where rows have no identity."""
    if schema.row_key:
        return schema.row_key
    found = [schema.find(column) for column in declared.get(str(name), ())]
    # a key that is declared for a table which has no such columns is none
    return tuple(column.name for column in found if column is not None) if all(found) else ()
