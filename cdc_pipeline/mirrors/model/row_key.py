"""The key of a mirror's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.model.source_tables import SOURCE_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc_pipeline.mirrors.model.state import MirrorState


def key_columns(state: MirrorState, declared: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The key from the table's definition, else the one `declared` by `database.table`, in lower case or as the mirror is
    spelled; empty for a keyless table.

    The key of a merged mirror starts with the source columns.
    """
    schema = state.schema
    if schema.row_key:
        return schema.row_key
    name = str(state.name)
    columns = [schema.find(column) for column in declared.get(name) or declared.get(name.lower(), ())]
    # a declared key with columns that the table lacks is ignored
    own = tuple(column.name for column in columns if column is not None) if all(columns) else ()
    return (*SOURCE_NAMES, *own) if own and state.source_tables is not None else own
