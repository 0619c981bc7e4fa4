"""What ALTER TABLE makes of a table's keys and indexes. Pure: schemas in, keys out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.schemas.changes import (
    AddIndex,
    AddPrimaryKey,
    AddUniqueKey,
    DropIndex,
    DropPrimaryKey,
    RenameIndex,
)
from cdc_pipeline.schemas.table import PlainIndex, UniqueKey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cdc_pipeline.schemas.changes import Clause
    from cdc_pipeline.schemas.table import Column, TableSchema


class KeyConflictError(ValueError):
    """A clause that does not fit the table's columns or keys."""

    def __init__(self, clause: Clause, reason: str) -> None:
        super().__init__(reason)
        self.clause = clause
        self.reason = reason


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


def altered_primary_key(
    schema: TableSchema, columns: Sequence[Column], clauses: tuple[Clause, ...], new_names: Mapping[str, str]
) -> tuple[str, ...]:
    """The columns of the primary key. `columns` are the table's after the statement; `new_names` are the new name of each
    old column that stays, by its folded old one."""
    key = _followed(schema.primary_key, new_names)
    for clause in clauses:
        if isinstance(clause, DropPrimaryKey):
            if not schema.primary_key:
                raise KeyConflictError(clause, "no primary key")
            key = ()
    for clause in clauses:
        if isinstance(clause, AddPrimaryKey):
            wanted = _key_columns(clause.columns, columns, clause)
            if key and key != wanted:
                raise KeyConflictError(clause, "a primary key exists")
            key = wanted
    return key


def altered_keys(
    schema: TableSchema, columns: Sequence[Column], clauses: tuple[Clause, ...], new_names: Mapping[str, str]
) -> tuple[tuple[UniqueKey, ...], tuple[PlainIndex, ...]]:
    """The UNIQUE keys and the plain indexes, arguments as above."""
    dropped = {_folded(clause.name) for clause in clauses if isinstance(clause, DropIndex)}
    renamed = {_folded(clause.name): clause.new_name for clause in clauses if isinstance(clause, RenameIndex)}

    def kept(name: str, old_columns: tuple[str, ...]) -> bool:
        # without a column of its own an index goes
        return _folded(name) not in dropped and not (old_columns and not _followed(old_columns, new_names))

    keys = [
        UniqueKey(renamed.get(_folded(key.name), key.name), _followed(key.columns, new_names), key.exact)
        for key in schema.unique_keys
        if kept(key.name, key.columns)
    ]
    indexes = [
        PlainIndex(renamed.get(_folded(index.name), index.name), _followed(index.columns, new_names))
        for index in schema.indexes
        if kept(index.name, index.columns)
    ]
    for clause in clauses:
        if isinstance(clause, AddIndex):
            wanted_columns = _key_columns(clause.index.columns, columns, clause)
            name = clause.index.name or _free_name(wanted_columns, keys, indexes)
            if all(_folded(name) != _folded(index.name) for index in indexes):
                indexes.append(PlainIndex(name, wanted_columns))
        elif isinstance(clause, AddUniqueKey):
            _add_unique(clause, columns, keys, indexes)
    return tuple(keys), tuple(indexes)


def _add_unique(
    clause: AddUniqueKey, columns: Sequence[Column], keys: list[UniqueKey], indexes: list[PlainIndex]
) -> None:
    wanted = replace(clause.key, columns=_key_columns(clause.key.columns, columns, clause))
    if not wanted.name:
        wanted = replace(wanted, name=_free_name(wanted.columns, keys, indexes))
    same = next((key for key in keys if _folded(key.name) == _folded(wanted.name)), None)
    if same is None:
        keys.append(wanted)
    elif replace(same, name=wanted.name) != wanted:
        # Only ADD UNIQUE … IF NOT EXISTS leaves a key that is there, and then an equal one most often.
        raise KeyConflictError(clause, f"a key {wanted.name!r} exists")


def _free_name(columns: tuple[str, ...], keys: Sequence[UniqueKey], indexes: Sequence[PlainIndex]) -> str:
    taken = (*(key.name for key in keys), *(index.name for index in indexes))
    return automatic_key_name(columns[0] if columns else "functional_index", taken)


def _key_columns(names: tuple[str, ...], columns: Sequence[Column], clause: Clause) -> tuple[str, ...]:
    """The names as the columns' definitions spell them."""
    spelt = {_folded(column.name): column.name for column in columns}
    for name in names:
        if _folded(name) not in spelt:
            raise KeyConflictError(clause, f"no column {name!r} for the key")
    return tuple(spelt[_folded(name)] for name in names)


def _followed(names: tuple[str, ...], new_names: Mapping[str, str]) -> tuple[str, ...]:
    """A key's columns after renames and without the dropped ones."""
    return tuple(new_names[_folded(name)] for name in names if _folded(name) in new_names)


def _folded(name: str) -> str:
    return name.casefold()
