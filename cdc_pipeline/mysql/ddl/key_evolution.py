"""Applies ALTER TABLE to the keys and indexes of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from cdc_pipeline.mysql.model import schema_changes as ddl
from cdc_pipeline.mysql.model.limits import MAX_INDEXES, limit_message
from cdc_pipeline.mysql.model.table import Column, PlainIndex, TableSchema, UniqueKey


class KeyConflictError(ValueError):
    """A clause does not fit the columns or keys of the table."""

    def __init__(self, clause: ddl.Clause, reason: str) -> None:
        super().__init__(reason)
        self.clause = clause
        self.reason = reason


class _Names:
    """The names of the keys and indexes of a table. Generates a name in constant time, however many share a column."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = {_folded(name) for name in taken} | {"primary"}
        self._numbers: dict[str, int] = {}

    def add(self, name: str) -> None:
        self._taken.add(_folded(name))

    def generate(self, column: str) -> str:
        """MySQL's name for a key without one: its first column, then with _2, _3 …"""
        name, number = column, self._numbers.get(_folded(column), 1)
        while _folded(name) in self._taken:
            number += 1
            name = f"{column}_{number}"
        self._numbers[_folded(column)] = max(number - 1, 1)
        return name


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
                raise KeyConflictError(clause, "no primary key")
            key = ()
    for clause in clauses:
        if isinstance(clause, ddl.AddPrimaryKey):
            wanted = _key_columns(clause.columns, spelt, clause)
            if key and key != wanted:
                raise KeyConflictError(clause, "a primary key exists")
            key = wanted
    return key


def altered_keys(
    schema: TableSchema, columns: Sequence[Column], clauses: tuple[ddl.Clause, ...], new_names: Mapping[str, str]
) -> tuple[tuple[UniqueKey, ...], tuple[PlainIndex, ...]]:
    """The UNIQUE keys and the other indexes after the statement. Parameters as in `altered_primary_key`."""
    dropped = {_folded(clause.name) for clause in clauses if isinstance(clause, ddl.DropIndex)}
    renamed = {_folded(clause.name): clause.new_name for clause in clauses if isinstance(clause, ddl.RenameIndex)}
    new_names = _names_in_keys(new_names, clauses)

    def is_kept(name: str, old_columns: tuple[str, ...]) -> bool:
        # MySQL drops an index with its last column
        return _folded(name) not in dropped and not (old_columns and not _renamed(old_columns, new_names))

    keys = [
        UniqueKey(renamed.get(_folded(key.name), key.name), _renamed(key.columns, new_names), key.exact)
        for key in schema.unique_keys
        if is_kept(key.name, key.columns)
    ]
    indexes = [
        PlainIndex(renamed.get(_folded(index.name), index.name), _renamed(index.columns, new_names))
        for index in schema.indexes
        if is_kept(index.name, index.columns)
    ]
    additions = _Additions(columns, keys, indexes)
    for clause in clauses:
        if isinstance(clause, ddl.AddIndex):
            additions.add_index(clause)
        elif isinstance(clause, ddl.AddUniqueKey):
            additions.add_unique_key(clause)
    return tuple(keys), tuple(indexes)


class _Additions:
    """Appends keys and indexes to `keys` and `indexes`."""

    def __init__(self, columns: Sequence[Column], keys: list[UniqueKey], indexes: list[PlainIndex]) -> None:
        self._spelt = {_folded(column.name): column.name for column in columns}
        self._keys = keys
        self._indexes = indexes
        self._key_of = {_folded(key.name): key for key in reversed(keys)}
        self._index_names = {_folded(index.name) for index in indexes}
        self._names = _Names([*(key.name for key in keys), *(index.name for index in indexes)])

    def add_index(self, clause: ddl.AddIndex) -> None:
        wanted = _key_columns(clause.index.columns, self._spelt, clause)
        name = clause.index.name or self._free_name(wanted)
        if _folded(name) not in self._index_names:
            self._indexes.append(PlainIndex(name, wanted))
            self._index_names.add(_folded(name))
            self._register(name, clause)

    def add_unique_key(self, clause: ddl.AddUniqueKey) -> None:
        wanted = replace(clause.key, columns=_key_columns(clause.key.columns, self._spelt, clause))
        if not wanted.name:
            wanted = replace(wanted, name=self._free_name(wanted.columns))
        same = self._key_of.get(_folded(wanted.name))
        if same is None:
            self._keys.append(wanted)
            self._key_of[_folded(wanted.name)] = wanted
            self._register(wanted.name, clause)
        elif replace(same, name=wanted.name) != wanted:
            # only ADD UNIQUE … IF NOT EXISTS keeps an existing key, which is most often equal
            raise KeyConflictError(clause, f"a key {wanted.name!r} exists")

    def _register(self, name: str, clause: ddl.Clause) -> None:
        self._names.add(name)
        if (count := len(self._keys) + len(self._indexes)) > MAX_INDEXES:
            raise KeyConflictError(clause, limit_message("indexes", count, MAX_INDEXES))

    def _free_name(self, columns: tuple[str, ...]) -> str:
        return self._names.generate(columns[0] if columns else "functional_index")


def _key_columns(names: tuple[str, ...], spelt: Mapping[str, str], clause: ddl.Clause) -> tuple[str, ...]:
    """The names as the column definitions spell them. `spelt`: that spelling by the name in casefold."""
    for name in names:
        if _folded(name) not in spelt:
            raise KeyConflictError(clause, f"no column {name!r} for the key")
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
