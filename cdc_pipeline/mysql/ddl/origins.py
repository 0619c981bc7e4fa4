"""The old columns that the columns after ALTER TABLE come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.mysql.ddl.evolution import altered, kept_columns

if TYPE_CHECKING:
    from cdc_pipeline.mysql.model.schema_changes import Clause
    from cdc_pipeline.mysql.model.table import TableSchema


def column_origins(schema: TableSchema, clauses: tuple[Clause, ...]) -> tuple[str | None, ...]:
    """The old name of each column of `altered(schema, clauses)`; None for an added one.

    A column that is dropped and added again under the same name is new: its old values are lost.
    """
    _, new_names = kept_columns(schema, clauses)
    old_names = {new.casefold(): old for old, new in new_names.items()}
    names = {column.name.casefold(): column.name for column in schema.columns}
    old = (old_names.get(column.name.casefold()) for column in altered(schema, clauses).columns)
    return tuple(None if name is None else names[name] for name in old)


def moves_values(schema: TableSchema, clauses: tuple[Clause, ...]) -> bool:
    """Whether a column of `altered(schema, clauses)` has other values than the old column of its name.

    The columns may look the same before and after: `DROP c, ADD c INT`, or two of one type that swap names and places.
    """
    after = altered(schema, clauses).columns
    pairs = zip(after, column_origins(schema, clauses), strict=True)
    return any(old is None or old.casefold() != column.name.casefold() for column, old in pairs)
