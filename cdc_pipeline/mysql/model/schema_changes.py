"""What a DDL statement says, as values: one statement becomes one or more `SchemaChange`.

The parser (`ddl_parser`) makes them, `evolution` folds them over a `TableSchema`, and `mirrors` carries them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from cdc_pipeline.mysql.model.base_changes import BaseChange, BaseClause, KeepingClause, RemovingClause, TableNames

# `as` with the same name: they are exported from here, where all clauses are.
from cdc_pipeline.mysql.model.partition_clauses import AddPartitions as AddPartitions
from cdc_pipeline.mysql.model.partition_clauses import CoalescePartition as CoalescePartition
from cdc_pipeline.mysql.model.partition_clauses import DropPartition as DropPartition
from cdc_pipeline.mysql.model.partition_clauses import ExchangePartition as ExchangePartition
from cdc_pipeline.mysql.model.partition_clauses import FirstPartition as FirstPartition
from cdc_pipeline.mysql.model.partition_clauses import LastPartition as LastPartition
from cdc_pipeline.mysql.model.partition_clauses import MergeFirstPartition as MergeFirstPartition
from cdc_pipeline.mysql.model.partition_clauses import PartitionBy as PartitionBy
from cdc_pipeline.mysql.model.partition_clauses import PartitionDefinitionClause as PartitionDefinitionClause
from cdc_pipeline.mysql.model.partition_clauses import PartitionRowsClause as PartitionRowsClause
from cdc_pipeline.mysql.model.partition_clauses import RemovePartitioning as RemovePartitioning
from cdc_pipeline.mysql.model.partition_clauses import ReorganizePartition as ReorganizePartition
from cdc_pipeline.mysql.model.partition_clauses import TruncatePartition as TruncatePartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdc_pipeline.gaps import Gap
    from cdc_pipeline.mysql.model.base_changes import UnsureConversion
    from cdc_pipeline.mysql.model.table import Column, Default, PlainIndex, TableName, TableSchema, UniqueKey


@dataclass(frozen=True, slots=True)
class Position:
    """Where a column goes: first, or after a named column. No Position means at the end, or unmoved."""

    after: str | None = None

    @property
    def first(self) -> bool:
        return self.after is None


# ---- clauses of ALTER TABLE, in the order in which the statement has them


@dataclass(frozen=True, slots=True)
class AddColumn(KeepingClause):
    column: Column
    position: Position | None = None
    if_not_exists: bool = False

    def details(self) -> str:
        return f"{self.column.name} {self.column.type}"


@dataclass(frozen=True, slots=True)
class DropColumn(RemovingClause):
    name: str
    if_exists: bool = False

    def details(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ChangeColumn(BaseClause):
    """CHANGE COLUMN, and MODIFY COLUMN where `name` is the column's own name."""

    name: str
    column: Column
    position: Position | None = None
    if_exists: bool = False

    def details(self) -> str:
        return f"{self.name} to {self.column.name} {self.column.type}"

    def loses_data(self, schema: TableSchema, unsure: UnsureConversion) -> bool:
        before = schema.find(self.name)
        return before is not None and unsure(before.type, self.column.type) is not None


@dataclass(frozen=True, slots=True)
class RenameColumn(KeepingClause):
    name: str
    new_name: str
    if_exists: bool = False

    def details(self) -> str:
        return f"{self.name} to {self.new_name}"


@dataclass(frozen=True, slots=True)
class SetDefault(KeepingClause):
    """ALTER COLUMN … SET DEFAULT, or DROP DEFAULT where `default` is None."""

    name: str
    default: Default | None
    if_exists: bool = False

    def details(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class AddPrimaryKey(KeepingClause):
    columns: tuple[str, ...]

    def details(self) -> str:
        return f"({', '.join(self.columns)})"


@dataclass(frozen=True, slots=True)
class DropPrimaryKey(KeepingClause):
    def details(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class AddUniqueKey(KeepingClause):
    key: UniqueKey

    def details(self) -> str:
        return f"{self.key.name} ({', '.join(self.key.columns)})"


@dataclass(frozen=True, slots=True)
class AddIndex(KeepingClause):
    """An index that is no key; it has the name "" where the statement gives none."""

    index: PlainIndex

    def details(self) -> str:
        return f"{self.index.name} ({', '.join(self.index.columns)})"


@dataclass(frozen=True, slots=True)
class DropIndex(KeepingClause):
    """Drops an index by name; the parser does not know whether it is a UNIQUE one."""

    name: str

    def details(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class RenameIndex(KeepingClause):
    name: str
    new_name: str

    def details(self) -> str:
        return f"{self.name} to {self.new_name}"


@dataclass(frozen=True, slots=True)
class RenameTo(KeepingClause):
    name: TableName

    def details(self) -> str:
        return str(self.name)


@dataclass(frozen=True, slots=True)
class DefaultCharset(KeepingClause):
    """[DEFAULT] CHARACTER SET or COLLATE of a table: what columns that come later have. Those that are there keep theirs."""

    charset: str
    collation: str | None = None

    def details(self) -> str:
        return f"{self.charset} {self.collation}" if self.collation else self.charset


@dataclass(frozen=True, slots=True)
class ConvertCharset(KeepingClause):
    """CONVERT TO CHARACTER SET: the columns that are there, and the default."""

    charset: str
    collation: str | None = None

    def details(self) -> str:
        return f"{self.charset} {self.collation}" if self.collation else self.charset


@dataclass(frozen=True, slots=True)
class NoRowEffect(KeepingClause):
    """A clause that changes neither rows nor columns: a foreign key, a comment, AUTO_INCREMENT, ANALYZE PARTITION …"""

    what: str

    def details(self) -> str:
        return self.what


@dataclass(frozen=True, slots=True)
class NotSupportedClause(KeepingClause):
    """A clause that may change rows or columns, and that this version does not apply."""

    what: str

    def details(self) -> str:
        return self.what


Clause: TypeAlias = (
    AddColumn
    | DropColumn
    | ChangeColumn
    | RenameColumn
    | SetDefault
    | AddPrimaryKey
    | DropPrimaryKey
    | AddUniqueKey
    | AddIndex
    | DropIndex
    | RenameIndex
    | RenameTo
    | DefaultCharset
    | ConvertCharset
    | PartitionRowsClause
    | PartitionDefinitionClause
    | NoRowEffect
    | NotSupportedClause
)
RowKeepingClause: TypeAlias = NoRowEffect | AddIndex | DefaultCharset | PartitionDefinitionClause
"""The clauses that change neither rows nor columns; `isinstance(clause, RowKeepingClause)` asks for them."""


# ---- statements


@dataclass(frozen=True, slots=True)
class CreateTable(BaseChange):
    """`gaps` are reasons why the table made may lack rows."""

    name: TableName
    schema: TableSchema
    if_not_exists: bool = False
    gaps: tuple[Gap, ...] = ()

    def details(self) -> str:
        return f"{self.name} ({', '.join(f'{column.name} {column.type}' for column in self.schema.columns)})"

    def names(self) -> TableNames:
        return TableNames(touched=(self.name,), created=(self.name,))


@dataclass(frozen=True, slots=True)
class CreateTableLike(BaseChange):
    name: TableName
    source: TableName
    if_not_exists: bool = False

    def details(self) -> str:
        return f"{self.name} like {self.source}"

    def names(self) -> TableNames:
        return TableNames(touched=(self.name,), created=(self.name,))


@dataclass(frozen=True, slots=True)
class AlterTable(BaseChange):
    name: TableName
    clauses: tuple[Clause, ...]

    def details(self) -> str:
        return f"{self.name}: {', '.join(clause.description() for clause in self.clauses)}"

    def names(self) -> TableNames:
        if all(isinstance(clause, RowKeepingClause) for clause in self.clauses):
            return TableNames()
        renamed = tuple((self.name, clause.name) for clause in self.clauses if isinstance(clause, RenameTo))
        touched = (self.name, *(new for _, new in renamed), *self._exchanged())
        return TableNames(touched=touched, renamed=renamed)

    def tables_losing_data(
        self, schema_of: Callable[[TableName], TableSchema], unsure: UnsureConversion
    ) -> tuple[TableName, ...]:
        if any(clause.loses_data(schema_of(self.name), unsure) for clause in self.clauses):
            return (self.name, *self._exchanged())
        return ()

    def _exchanged(self) -> tuple[TableName, ...]:
        return tuple(clause.table for clause in self.clauses if isinstance(clause, ExchangePartition))


@dataclass(frozen=True, slots=True)
class RenameTable(BaseChange):
    """One pair of RENAME TABLE; several pairs are several changes, to be done from left to right."""

    name: TableName
    new_name: TableName

    def details(self) -> str:
        return f"{self.name} to {self.new_name}"

    def names(self) -> TableNames:
        pair = (self.name, self.new_name)
        return TableNames(touched=pair, renamed=(pair,))


@dataclass(frozen=True, slots=True)
class TruncateTable(BaseChange):
    name: TableName

    def details(self) -> str:
        return str(self.name)

    def names(self) -> TableNames:
        return TableNames(touched=(self.name,), emptied=(self.name,))


@dataclass(frozen=True, slots=True)
class DropTable(BaseChange):
    name: TableName
    if_exists: bool = False

    def details(self) -> str:
        return str(self.name)

    def names(self) -> TableNames:
        return TableNames(touched=(self.name,), dropped=(self.name,))


@dataclass(frozen=True, slots=True)
class DropDatabase(BaseChange):
    """`tables` are the mirrors of its tables where those have names of their own; None where they have upstream's."""

    database: str
    tables: frozenset[TableName] | None = None

    def has(self, mirror: TableName) -> bool:
        return mirror.database == self.database if self.tables is None else mirror in self.tables

    def details(self) -> str:
        return self.database

    def names(self) -> TableNames:
        return TableNames()


@dataclass(frozen=True, slots=True)
class CreateTableAsSelect(BaseChange):
    """A table made by a query. `columns` and `keys` are what the statement itself defines; `database` is where the query's
    own names are looked for."""

    name: TableName
    columns: tuple[Clause, ...]
    keys: tuple[Clause, ...]
    charset: str | None
    query: str
    database: str
    if_not_exists: bool = False
    collation: str | None = None

    def details(self) -> str:
        return f"{self.name} as {self.query}"

    def names(self) -> TableNames:
        return TableNames(touched=(self.name,), created=(self.name,))


@dataclass(frozen=True, slots=True)
class RecoverTable(BaseChange):
    """RECOVER TABLE, or FLASHBACK TABLE with a `new_name` or without."""

    name: TableName
    new_name: TableName | None = None

    def details(self) -> str:
        return str(self.name) if self.new_name is None else f"{self.name} as {self.new_name}"

    def names(self) -> TableNames:
        recovered = (self.new_name or self.name,)
        return TableNames(touched=recovered, recovered=recovered)


@dataclass(frozen=True, slots=True)
class RecoverDatabase(BaseChange):
    """FLASHBACK DATABASE, with a `new_database` or without."""

    database: str
    new_database: str | None = None

    def details(self) -> str:
        return f"{self.database} as {self.new_database}" if self.new_database else self.database

    def names(self) -> TableNames:
        return TableNames()


@dataclass(frozen=True, slots=True)
class NoTableEffect(BaseChange):
    """A statement that changes no table's rows or columns: CREATE or ALTER DATABASE, views, …"""

    what: str

    def details(self) -> str:
        return self.what

    def names(self) -> TableNames:
        return TableNames()


@dataclass(frozen=True, slots=True)
class NotSupported(BaseChange):
    """A statement that may change tables, and that this version cannot read or apply; `reason` says which and why.

    `creates`: it brings the table `name` into being. `everywhere`: it may change any table.
    """

    reason: str
    name: TableName | None = None
    creates: bool = False
    everywhere: bool = False

    def details(self) -> str:
        return self.reason

    def names(self) -> TableNames:
        return TableNames() if self.name is None else TableNames(touched=(self.name,))


@dataclass(frozen=True, slots=True)
class OfShard(BaseChange):
    """What a statement does to one of the tables of the merged mirror `name`: `shard` is upstream's name for it, and
    `change` is by upstream's names. A RenameTable of it stays in the mirror."""

    name: TableName
    shard: TableName
    change: ShardChange

    def details(self) -> str:
        return self.change.description()

    def names(self) -> TableNames:
        inner, own = self.change.names(), (self.name,)
        return TableNames(touched=own if inner.touched else (), created=own if inner.added else ())

    def tables_losing_data(
        self, schema_of: Callable[[TableName], TableSchema], unsure: UnsureConversion
    ) -> tuple[TableName, ...]:
        return (self.name,) if self.change.tables_losing_data(lambda _: schema_of(self.name), unsure) else ()

    def description(self) -> str:
        return f"{self.name}: {self.details()}"


ShardChange: TypeAlias = "CreateTable | AlterTable | RenameTable | TruncateTable | DropTable | NotSupported"
"""What is done to one of the tables of a merged mirror."""
SchemaChange: TypeAlias = (
    CreateTable
    | CreateTableLike
    | CreateTableAsSelect
    | AlterTable
    | RenameTable
    | TruncateTable
    | DropTable
    | DropDatabase
    | RecoverTable
    | RecoverDatabase
    | NoTableEffect
    | NotSupported
    | OfShard
)


def of_table(change: SchemaChange) -> SchemaChange:
    """What is done to upstream's table, of whichever mirror that is."""
    return change.change if isinstance(change, OfShard) else change
