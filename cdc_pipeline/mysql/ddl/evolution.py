"""What a table's schema becomes by ALTER TABLE. Pure: schemas in, schemas out.

As in MySQL, all clauses of one statement are applied at once: those that change or drop something name it as it was
before the statement, those that add something (and AFTER) name it as it is after it. So `RENAME COLUMN a TO b, RENAME
COLUMN b TO a` swaps two names.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from cdc_pipeline.mysql.ddl.column_types import with_bytes_for_binary
from cdc_pipeline.mysql.ddl.key_evolution import KeyConflictError, altered_keys, altered_primary_key
from cdc_pipeline.mysql.ddl.partition_evolution import altered_partitioning
from cdc_pipeline.mysql.model.limits import MOST_COLUMNS, beyond, short
from cdc_pipeline.mysql.model.schema_changes import (
    AddColumn,
    ChangeColumn,
    ConvertCharset,
    DefaultCharset,
    DropColumn,
    NotSupportedClause,
    RenameColumn,
    SetDefault,
)
from cdc_pipeline.mysql.types.charsets import UNKNOWN, charset_of_column, converted_charset, pinned

if TYPE_CHECKING:
    from cdc_pipeline.mysql.model.schema_changes import Clause, Position
    from cdc_pipeline.mysql.model.table import Column, MySqlType, TableSchema

_ClauseT = TypeVar("_ClauseT")


class SchemaConflictError(ValueError):
    """A clause that cannot be applied to the schema at hand, which is then not the one that upstream had."""

    def __init__(self, clause: Clause, reason: str) -> None:
        super().__init__(f"{reason}: {short(str(clause))}")
        self.clause = clause
        self.reason = reason


def altered(schema: TableSchema, clauses: tuple[Clause, ...]) -> TableSchema:
    """The schema after one ALTER TABLE with these clauses.

    RenameTo and NoRowEffect change nothing here. Clauses on partitions never fail: where they do not fit, the
    partitioning is unknown afterwards. Raises SchemaConflictError for a clause that does not fit the
    schema (a column to drop is missing, one to add exists, …) and for every NotSupportedClause: leave those out to
    fold the rest.
    """
    for clause in clauses:
        if isinstance(clause, NotSupportedClause):
            raise SchemaConflictError(clause, "not supported")
    schema = _with_charset(schema, clauses)
    columns, new_names = kept_columns(schema, clauses)
    columns = _with_positions(columns, schema, clauses, new_names)
    if not columns and clauses:
        raise SchemaConflictError(clauses[-1], "no column is left")
    try:
        primary_key = altered_primary_key(schema, columns, clauses, new_names)
        unique_keys, indexes = altered_keys(schema, columns, clauses, new_names)
    except KeyConflictError as error:
        raise SchemaConflictError(error.clause, error.reason) from None
    # MySQL makes the columns of a primary key NOT NULL whatever their definition says.
    in_key = {_folded(name) for name in primary_key}
    columns = [replace(item, nullable=False) if _folded(item.name) in in_key else item for item in columns]
    after = tuple(columns)
    partitioning = altered_partitioning(schema.partitioning, clauses, new_names, after)
    return replace(
        schema,
        columns=after,
        primary_key=primary_key,
        unique_keys=unique_keys,
        partitioning=partitioning,
        indexes=indexes,
    )


def _with_charset(schema: TableSchema, clauses: tuple[Clause, ...]) -> TableSchema:
    """The table before the other clauses with the default that the statement gives it. Its columns keep what they have, as
    their own, but for CONVERT TO."""
    found = schema
    for clause in clauses:
        if not isinstance(clause, (DefaultCharset, ConvertCharset)):
            continue
        convert = isinstance(clause, ConvertCharset)
        kinds = [
            converted_charset(column.type, clause.charset, clause.collation) if convert else pinned(column.type, schema)
            for column in found.columns
        ]
        columns = tuple(replace(item, type=kind) for item, kind in zip(found.columns, kinds, strict=True))
        charset = None if clause.charset == UNKNOWN else clause.charset
        found = replace(found, columns=columns, charset=charset, collation=clause.collation)
    return found


def shape(schema: TableSchema) -> tuple[object, ...]:
    """What rows depend on: the columns' names, types and formulas, and what identifies a row."""
    columns = tuple(
        (column.name, _kind(column.type, schema.charset), column.generated and column.expression)
        for column in schema.columns
    )
    return (columns, schema.row_key)


def _kind(kind: MySqlType, default_charset: str | None) -> MySqlType:
    return replace(kind, charset=charset_of_column(kind, default_charset), collation=None)


def _folded(name: str) -> str:
    return name.casefold()


def _of(kind: type[_ClauseT], clauses: tuple[Clause, ...]) -> list[_ClauseT]:
    return [clause for clause in clauses if isinstance(clause, kind)]


def kept_columns(schema: TableSchema, clauses: tuple[Clause, ...]) -> tuple[list[Column], dict[str, str]]:
    """The old columns that stay, changed and renamed in their places, and the new name of each by its folded old."""
    present = {_folded(column.name) for column in schema.columns}
    actions: dict[str, DropColumn | ChangeColumn | RenameColumn] = {}
    defaults: dict[str, SetDefault] = {}
    for clause in clauses:
        if not isinstance(clause, DropColumn | ChangeColumn | RenameColumn | SetDefault):
            continue
        if _folded(clause.name) not in present:
            if clause.if_exists:
                continue
            raise SchemaConflictError(clause, f"no column {clause.name!r}")
        if isinstance(clause, SetDefault):
            defaults[_folded(clause.name)] = clause
        elif _folded(clause.name) in actions:
            raise SchemaConflictError(clause, f"column {clause.name!r} is changed twice")
        else:
            actions[_folded(clause.name)] = clause
    columns: list[Column] = []
    new_names: dict[str, str] = {}
    for column in schema.columns:
        old = _folded(column.name)
        action = actions.get(old)
        if isinstance(action, DropColumn):
            continue
        if isinstance(action, ChangeColumn):
            column = _in_table(schema, action.column)
        elif isinstance(action, RenameColumn):
            column = replace(column, name=action.new_name)
        if old in defaults:
            column = replace(column, default=defaults[old].default)
        columns.append(column)
        new_names[old] = column.name
    _check_distinct(columns, clauses)
    return columns, new_names


def _in_table(schema: TableSchema, column: Column) -> Column:
    """A column's definition as the table takes it: text in a table of character set `binary` is bytes."""
    return replace(column, type=with_bytes_for_binary(column.type, schema.charset))


def _check_distinct(columns: list[Column], clauses: tuple[Clause, ...]) -> None:
    seen: set[str] = set()
    for column in columns:
        name = _folded(column.name)
        if name in seen:
            culprits = [item for item in clauses if isinstance(item, ChangeColumn | RenameColumn)]
            raise SchemaConflictError(culprits[-1], f"two columns {column.name!r}")
        seen.add(name)


def _with_positions(
    kept: list[Column], schema: TableSchema, clauses: tuple[Clause, ...], new_names: dict[str, str]
) -> list[Column]:
    """The columns with the added ones and after the moves, in the order of the statement, as MySQL does it."""
    columns = _Ordered(kept)
    for clause in clauses:
        if isinstance(clause, AddColumn):
            if columns.has(clause.column.name):
                if clause.if_not_exists:
                    continue
                raise SchemaConflictError(clause, f"column {clause.column.name!r} exists")
            columns.insert(_in_table(schema, clause.column), clause.position, clause)
        elif isinstance(clause, ChangeColumn) and clause.position is not None and _folded(clause.name) in new_names:
            columns.move(new_names[_folded(clause.name)], clause.position, clause)
    return columns.found


class _Ordered:
    """Columns in their order, found by name: a statement may have thousands of clauses."""

    def __init__(self, columns: list[Column]) -> None:
        self.found = list(columns)
        self._names = [_folded(column.name) for column in columns]
        self._present = set(self._names)

    def has(self, name: str) -> bool:
        return _folded(name) in self._present

    def move(self, name: str, position: Position, clause: Clause) -> None:
        if self.has(name):
            place = self._names.index(_folded(name))
            del self._names[place]
            self._present.discard(_folded(name))
            self.insert(self.found.pop(place), position, clause)

    def insert(self, column: Column, position: Position | None, clause: Clause) -> None:
        place = len(self.found)
        if position is not None and position.after is None:
            place = 0
        elif position is not None and position.after is not None:
            if not self.has(position.after):
                raise SchemaConflictError(clause, f"no column {position.after!r} to follow")
            place = self._names.index(_folded(position.after)) + 1
        self.found.insert(place, column)
        self._names.insert(place, _folded(column.name))
        self._present.add(_folded(column.name))
        if len(self.found) > MOST_COLUMNS:
            raise SchemaConflictError(clause, beyond("columns", len(self.found), MOST_COLUMNS))
