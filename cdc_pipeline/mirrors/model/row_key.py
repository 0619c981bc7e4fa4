"""Which columns of a mirror identify a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.model.shards import SOURCE_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc_pipeline.mirrors.model.state import MirrorState


def key_columns(state: MirrorState, declared: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The key of the definition, else the one `declared` by `database.table`, in a merged mirror after the names of its
    tables; empty where rows have no identity."""
    schema = state.schema
    if schema.row_key:
        return schema.row_key
    found = [schema.find(column) for column in declared.get(str(state.name), ())]
    # a key that is declared for a table which has no such columns is none
    own = tuple(column.name for column in found if column is not None) if all(found) else ()
    return (*SOURCE_NAMES, *own) if own and state.shards is not None else own
