"""What a DDL statement says, as values: one statement becomes one or more `SchemaChange`.

The parser (`ddl_parser`) makes them, `evolution` folds them over a `TableSchema`, and `mirrors` carries them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from cdc_pipeline.schemas.table import Column, Default, TableName, TableSchema, UniqueKey


@dataclass(frozen=True, slots=True)
class Position:
    """Where a column goes: first, or after a named column. No Position means at the end, or unmoved."""

    after: str | None = None

    @property
    def first(self) -> bool:
        return self.after is None


# ---- clauses of ALTER TABLE, in the order in which the statement has them


@dataclass(frozen=True, slots=True)
class AddColumn:
    column: Column
    position: Position | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropColumn:
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    """CHANGE COLUMN, and MODIFY COLUMN where `name` is the column's own name."""

    name: str
    column: Column
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class RenameColumn:
    name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class SetDefault:
    """ALTER COLUMN … SET DEFAULT, or DROP DEFAULT where `default` is None."""

    name: str
    default: Default | None


@dataclass(frozen=True, slots=True)
class AddPrimaryKey:
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DropPrimaryKey:
    pass


@dataclass(frozen=True, slots=True)
class AddUniqueKey:
    key: UniqueKey


@dataclass(frozen=True, slots=True)
class DropIndex:
    """Drops an index by name; the parser does not know whether it is a UNIQUE one."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameIndex:
    name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class RenameTo:
    name: TableName


@dataclass(frozen=True, slots=True)
class NoRowEffect:
    """A clause that changes neither rows nor columns: an index, a comment, AUTO_INCREMENT, ADD PARTITION …"""

    what: str


@dataclass(frozen=True, slots=True)
class NotSupportedClause:
    """A clause that may change rows or columns, and that this version does not apply; `other` is a second table whose
    rows it changes (EXCHANGE PARTITION)."""

    what: str
    other: TableName | None = None


Clause: TypeAlias = (
    AddColumn
    | DropColumn
    | ChangeColumn
    | RenameColumn
    | SetDefault
    | AddPrimaryKey
    | DropPrimaryKey
    | AddUniqueKey
    | DropIndex
    | RenameIndex
    | RenameTo
    | NoRowEffect
    | NotSupportedClause
)


# ---- statements


@dataclass(frozen=True, slots=True)
class CreateTable:
    name: TableName
    schema: TableSchema
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateTableLike:
    name: TableName
    source: TableName
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterTable:
    name: TableName
    clauses: tuple[Clause, ...]


@dataclass(frozen=True, slots=True)
class RenameTable:
    """One pair of RENAME TABLE; several pairs are several changes, to be done from left to right."""

    name: TableName
    new_name: TableName


@dataclass(frozen=True, slots=True)
class TruncateTable:
    name: TableName


@dataclass(frozen=True, slots=True)
class DropTable:
    name: TableName
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropDatabase:
    database: str


@dataclass(frozen=True, slots=True)
class NoTableEffect:
    """A statement that changes no table's rows or columns: CREATE or ALTER DATABASE, views, …"""

    what: str


@dataclass(frozen=True, slots=True)
class NotSupported:
    """A statement that may change tables, and that this version cannot read or apply; `reason` says which and why."""

    reason: str
    name: TableName | None = None


SchemaChange: TypeAlias = (
    CreateTable
    | CreateTableLike
    | AlterTable
    | RenameTable
    | TruncateTable
    | DropTable
    | DropDatabase
    | NoTableEffect
    | NotSupported
)


def described(change: SchemaChange) -> str:
    """The change in words, for people who read the history."""
    if isinstance(change, AlterTable):
        return f"AlterTable {change.name}: {', '.join(_clause(clause) for clause in change.clauses)}"
    if isinstance(change, NoTableEffect):
        return f"NoTableEffect {change.what}"
    if isinstance(change, NotSupported):
        return f"NotSupported {change.reason}"
    if isinstance(change, DropDatabase):
        return f"DropDatabase {change.database}"
    text = f"{type(change).__name__} {change.name}"
    if isinstance(change, RenameTable):
        return f"{text} to {change.new_name}"
    if isinstance(change, CreateTableLike):
        return f"{text} like {change.source}"
    if isinstance(change, CreateTable):
        columns = ", ".join(f"{column.name} {column.type}" for column in change.schema.columns)
        return f"{text} ({columns})"
    return text


def _clause(clause: Clause) -> str:
    kind = type(clause).__name__
    if isinstance(clause, AddColumn):
        return f"{kind} {clause.column.name} {clause.column.type}"
    if isinstance(clause, ChangeColumn):
        return f"{kind} {clause.name} to {clause.column.name} {clause.column.type}"
    if isinstance(clause, (RenameColumn, RenameIndex)):
        return f"{kind} {clause.name} to {clause.new_name}"
    if isinstance(clause, AddPrimaryKey):
        return f"{kind} ({', '.join(clause.columns)})"
    if isinstance(clause, AddUniqueKey):
        return f"{kind} {clause.key.name} ({', '.join(clause.key.columns)})"
    if isinstance(clause, (NoRowEffect, NotSupportedClause)):
        return f"{kind} {clause.what}"
    return f"{kind} {getattr(clause, 'name', '')}".strip()
