"""Applies ALTER TABLE to the keys and indexes of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from cdc_pipeline.mysql.model import schema_changes as ddl
from cdc_pipeline.mysql.model.limits import MAX_INDEXES, limit_message
from cdc_pipeline.mysql.model.schema_changes import SchemaConflictError
from cdc_pipeline.mysql.model.table import Column, PlainIndex, TableSchema, UniqueKey

_Index = TypeVar("_Index", UniqueKey, PlainIndex)


def altered_primary_key(
    schema: TableSchema, columns: Sequence[Column], clauses: tuple[ddl.Clause, ...], new_names: Mapping[str, str]
) -> tuple[str, ...]:
    """The columns of the primary key after the statement.

    `columns`: the columns after the statement. `new_names`: the new name of each kept column by its old name in casefold.
    """
    key = _renamed(schema.primary_key, _names_in_keys(new_names, clauses))
    spelt = {_folded(column.name): column.name for column in columns}
    for clause in clauses:
        if isinstance(clause, ddl.DropPrimaryKey):
            if not schema.primary_key:
                raise SchemaConflictError(clause, "no primary key")
            key = ()
    for clause in clauses:
        if isinstance(clause, ddl.AddPrimaryKey):
            wanted = _key_columns(clause.columns, spelt, clause)
            if key and key != wanted:
                raise SchemaConflictError(clause, "a primary key exists")
            key = wanted
    return key


def altered_keys(
    schema: TableSchema, columns: Sequence[Column], clauses: tuple[ddl.Clause, ...], new_names: Mapping[str, str]
) -> tuple[tuple[UniqueKey, ...], tuple[PlainIndex, ...]]:
    """The UNIQUE keys and the other indexes after the statement. Parameters as in `altered_primary_key`."""
    dropped = {_folded(clause.name) for clause in clauses if isinstance(clause, ddl.DropIndex)}
    renamed = {_folded(clause.name): clause.new_name for clause in clauses if isinstance(clause, ddl.RenameIndex)}
    new_names = _names_in_keys(new_names, clauses)

    def kept(indexes: Sequence[_Index]) -> list[_Index]:
        found = []
        for index in indexes:
            columns = _renamed(index.columns, new_names)
            # MySQL drops an index with its last column
            if _folded(index.name) not in dropped and (columns or not index.columns):
                found.append(replace(index, name=renamed.get(_folded(index.name), index.name), columns=columns))
        return found

    keys, indexes = kept(schema.unique_keys), kept(schema.indexes)
    spelt = {_folded(column.name): column.name for column in columns}
    taken = {"primary", *(_folded(key.name) for key in keys), *(_folded(index.name) for index in indexes)}
    for clause in clauses:
        if isinstance(clause, ddl.AddIndex):
            _add(indexes, clause.index, spelt, taken, clause)
        elif isinstance(clause, ddl.AddUniqueKey):
            _add(keys, clause.key, spelt, taken, clause)
        if len(keys) + len(indexes) > MAX_INDEXES:
            raise SchemaConflictError(clause, limit_message("indexes", len(keys) + len(indexes), MAX_INDEXES))
    return tuple(keys), tuple(indexes)


def _add(
    indexes: list[_Index],
    index: _Index,
    spelt: Mapping[str, str],
    taken: set[str],
    clause: ddl.AddIndex | ddl.AddUniqueKey,
) -> None:
    """Appends the index, unless one of its name exists. `taken`: the names of all indexes, in casefold."""
    columns = _key_columns(index.columns, spelt, clause)
    wanted = replace(index, columns=columns)
    if not index.name:
        wanted = replace(wanted, name=_free_name(columns[0] if columns else "functional_index", taken))
    same = next((one for one in indexes if _folded(one.name) == _folded(wanted.name)), None)
    if same is None:
        indexes.append(wanted)
        taken.add(_folded(wanted.name))
    elif isinstance(wanted, UniqueKey) and replace(same, name=wanted.name) != wanted:
        # only ADD UNIQUE … IF NOT EXISTS keeps an existing key, which is most often equal
        raise SchemaConflictError(clause, f"a key {wanted.name!r} exists")


def _free_name(column: str, taken: set[str]) -> str:
    """MySQL's name for a key without one: its first column, then with _2, _3 …"""
    name, number = column, 1
    while _folded(name) in taken:
        number += 1
        name = f"{column}_{number}"
    return name


def _key_columns(names: tuple[str, ...], spelt: Mapping[str, str], clause: ddl.Clause) -> tuple[str, ...]:
    """The names as the column definitions spell them. `spelt`: that spelling by the name in casefold."""
    for name in names:
        if _folded(name) not in spelt:
            raise SchemaConflictError(clause, f"no column {name!r} for the key")
    return tuple(spelt[_folded(name)] for name in names)


def _names_in_keys(new_names: Mapping[str, str], clauses: tuple[ddl.Clause, ...]) -> Mapping[str, str]:
    """`new_names`, and the columns that the statement drops and adds again: MySQL finds the columns of a key by their names
    among the columns after the statement (`mysql_alter_table`)."""
    dropped = {_folded(clause.name) for clause in clauses if isinstance(clause, ddl.DropColumn)}
    added = [clause.column.name for clause in clauses if isinstance(clause, ddl.AddColumn)]
    return {_folded(name): name for name in added if _folded(name) in dropped} | dict(new_names)


def _renamed(names: tuple[str, ...], new_names: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of a key with new names and without dropped columns."""
    return tuple(new_names[_folded(name)] for name in names if _folded(name) in new_names)


def _folded(name: str) -> str:
    return name.casefold()
