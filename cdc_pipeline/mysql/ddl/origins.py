"""Where the columns of a table come from when ALTER TABLE has changed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.mysql.ddl.evolution import altered, kept_columns

if TYPE_CHECKING:
    from cdc_pipeline.mysql.model.schema_changes import Clause
    from cdc_pipeline.mysql.model.table import TableSchema


def column_origins(schema: TableSchema, clauses: tuple[Clause, ...]) -> tuple[str | None, ...]:
    """For each column of `altered(schema, clauses)` the name that it had before; None for an added one.

    A column that is dropped and added again under its name is a new one: its old values are gone.
    """
    _, new_names = kept_columns(schema, clauses)
    old_names = {new.casefold(): old for old, new in new_names.items()}
    names = {column.name.casefold(): column.name for column in schema.columns}
    found = (old_names.get(column.name.casefold()) for column in altered(schema, clauses).columns)
    return tuple(None if old is None else names[old] for old in found)
