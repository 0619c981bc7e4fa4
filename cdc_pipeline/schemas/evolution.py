"""What a table's schema becomes by ALTER TABLE. Pure: schemas in, schemas out.

As in MySQL, all clauses of one statement are applied at once: those that change or drop something name it as it was
before the statement, those that add something (and AFTER) name it as it is after it. So `RENAME COLUMN a TO b, RENAME
COLUMN b TO a` swaps two names.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from cdc_pipeline.schemas.changes import (
    AddColumn,
    AddPrimaryKey,
    AddUniqueKey,
    ChangeColumn,
    DropColumn,
    DropIndex,
    DropPrimaryKey,
    NotSupportedClause,
    RenameColumn,
    RenameIndex,
    SetDefault,
)
from cdc_pipeline.schemas.ddl_types import with_bytes_for_binary
from cdc_pipeline.schemas.table import Column, TableSchema, UniqueKey

if TYPE_CHECKING:
    from cdc_pipeline.schemas.changes import Clause, Position

_ClauseT = TypeVar("_ClauseT")


class SchemaConflictError(ValueError):
    """A clause that cannot be applied to the schema at hand, which is then not the one that upstream had."""

    def __init__(self, clause: Clause, reason: str) -> None:
        super().__init__(f"{reason}: {clause}")
        self.clause = clause
        self.reason = reason


def altered(schema: TableSchema, clauses: tuple[Clause, ...]) -> TableSchema:
    """The schema after one ALTER TABLE with these clauses.

    RenameTo and NoRowEffect change nothing here. Raises SchemaConflictError for a clause that does not fit the
    schema (a column to drop is missing, one to add exists, …) and for every NotSupportedClause: leave those out to
    fold the rest.
    """
    for clause in clauses:
        if isinstance(clause, NotSupportedClause):
            raise SchemaConflictError(clause, "not supported")
    columns, new_names = kept_columns(schema, clauses)
    columns = _with_positions(columns, schema, clauses, new_names)
    if not columns and clauses:
        raise SchemaConflictError(clauses[-1], "no column is left")
    primary_key = _primary_key(schema, columns, clauses, new_names)
    unique_keys = _unique_keys(schema, columns, clauses, new_names)
    # MySQL makes the columns of a primary key NOT NULL whatever their definition says.
    in_key = {_folded(name) for name in primary_key}
    columns = [replace(item, nullable=False) if _folded(item.name) in in_key else item for item in columns]
    return replace(schema, columns=tuple(columns), primary_key=primary_key, unique_keys=unique_keys)


def automatic_key_name(column: str, taken: tuple[str, ...]) -> str:
    """MySQL's name for a UNIQUE key without one: that of its first column, then with _2, _3 …

    An expression in place of the first column counts as a column called `functional_index`.
    """
    names = {_folded(name) for name in taken} | {"primary"}
    name, number = column, 1
    while _folded(name) in names:
        number += 1
        name = f"{column}_{number}"
    return name


def _folded(name: str) -> str:
    return name.casefold()


def _of(kind: type[_ClauseT], clauses: tuple[Clause, ...]) -> list[_ClauseT]:
    return [clause for clause in clauses if isinstance(clause, kind)]


def kept_columns(schema: TableSchema, clauses: tuple[Clause, ...]) -> tuple[list[Column], dict[str, str]]:
    """The old columns that stay, changed and renamed in their places, and the new name of each by its folded old."""
    actions: dict[str, DropColumn | ChangeColumn | RenameColumn] = {}
    defaults: dict[str, SetDefault] = {}
    for clause in clauses:
        if not isinstance(clause, DropColumn | ChangeColumn | RenameColumn | SetDefault):
            continue
        if schema.find(clause.name) is None:
            if isinstance(clause, DropColumn) and clause.if_exists:
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
    columns = list(kept)
    for clause in clauses:
        if isinstance(clause, AddColumn):
            if _place(columns, clause.column.name) is not None:
                if clause.if_not_exists:
                    continue
                raise SchemaConflictError(clause, f"column {clause.column.name!r} exists")
            _insert(columns, _in_table(schema, clause.column), clause.position, clause)
        elif isinstance(clause, ChangeColumn) and clause.position is not None:
            place = _place(columns, new_names[_folded(clause.name)])
            if place is not None:
                _insert(columns, columns.pop(place), clause.position, clause)
    return columns


def _place(columns: list[Column], name: str) -> int | None:
    folded = _folded(name)
    return next((place for place, column in enumerate(columns) if _folded(column.name) == folded), None)


def _insert(columns: list[Column], column: Column, position: Position | None, clause: Clause) -> None:
    if position is None:
        columns.append(column)
    elif position.after is None:
        columns.insert(0, column)
    else:
        place = _place(columns, position.after)
        if place is None:
            raise SchemaConflictError(clause, f"no column {position.after!r} to follow")
        columns.insert(place + 1, column)


def _key_columns(names: tuple[str, ...], columns: list[Column], clause: Clause) -> tuple[str, ...]:
    """The names as the columns' definitions spell them."""
    found: list[str] = []
    for name in names:
        place = _place(columns, name)
        if place is None:
            raise SchemaConflictError(clause, f"no column {name!r} for the key")
        found.append(columns[place].name)
    return tuple(found)


def _followed(names: tuple[str, ...], new_names: dict[str, str]) -> tuple[str, ...]:
    """A key's columns after renames and without the dropped ones."""
    return tuple(new_names[_folded(name)] for name in names if _folded(name) in new_names)


def _primary_key(
    schema: TableSchema, columns: list[Column], clauses: tuple[Clause, ...], new_names: dict[str, str]
) -> tuple[str, ...]:
    key = _followed(schema.primary_key, new_names)
    for drop in _of(DropPrimaryKey, clauses):
        if not schema.primary_key:
            raise SchemaConflictError(drop, "no primary key")
        key = ()
    for add in _of(AddPrimaryKey, clauses):
        wanted = _key_columns(add.columns, columns, add)
        if key and key != wanted:
            raise SchemaConflictError(add, "a primary key exists")
        key = wanted
    return key


def _unique_keys(
    schema: TableSchema, columns: list[Column], clauses: tuple[Clause, ...], new_names: dict[str, str]
) -> tuple[UniqueKey, ...]:
    dropped = {_folded(clause.name) for clause in _of(DropIndex, clauses)}
    renamed = {_folded(clause.name): clause.new_name for clause in _of(RenameIndex, clauses)}
    keys: list[UniqueKey] = []
    for key in schema.unique_keys:
        followed = _followed(key.columns, new_names)
        if _folded(key.name) in dropped or (key.columns and not followed):
            continue
        keys.append(UniqueKey(renamed.get(_folded(key.name), key.name), followed, key.exact))
    for add in _of(AddUniqueKey, clauses):
        wanted = replace(add.key, columns=_key_columns(add.key.columns, columns, add))
        taken = tuple(key.name for key in keys)
        if not wanted.name:
            first = wanted.columns[0] if wanted.columns else "functional_index"
            wanted = replace(wanted, name=automatic_key_name(first, taken))
        same = next((key for key in keys if _folded(key.name) == _folded(wanted.name)), None)
        if same is None:
            keys.append(wanted)
        elif replace(same, name=wanted.name) != wanted:
            # Only ADD UNIQUE … IF NOT EXISTS leaves a key that is there, and then an equal one most often.
            raise SchemaConflictError(add, f"a key {wanted.name!r} exists")
    return tuple(keys)
