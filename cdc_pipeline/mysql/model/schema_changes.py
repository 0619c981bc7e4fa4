"""DDL statements and the clauses of ALTER TABLE as frozen values.

`mysql.ddl.parser` creates them: one statement becomes one or more of them. `mysql.ddl.evolution` applies clauses to a
`TableSchema`. Class names and field names are stored in plans, class names also in `ddl_history.changes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from cdc_pipeline.gaps import Gap
from cdc_pipeline.mysql.model.base_changes import (
    BaseChange,
    BaseClause,
    KeepingClause,
    RemovingClause,
    TableNames,
    UnsureConversion,
)
from cdc_pipeline.mysql.model.limits import shortened
from cdc_pipeline.mysql.model.partitions import Partition, Partitioning
from cdc_pipeline.mysql.model.table import Column, Default, ForeignKey, PlainIndex, TableName, TableSchema, UniqueKey
from cdc_pipeline.stored_json import BY_CLASS


@dataclass(frozen=True, slots=True)
class ColumnPosition:
    """Where ADD or MODIFY puts a column. None in its place: an added column goes to the end, a changed one stays."""

    after: str | None = None
    """The column before it; None means FIRST."""

    def __str__(self) -> str:
        return "first" if self.after is None else f"after {self.after}"


# ---- clauses of ALTER TABLE


@dataclass(frozen=True, slots=True)
class AddColumn(KeepingClause):
    column: Column
    position: ColumnPosition | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropColumn(RemovingClause):
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ChangeColumn(BaseClause):
    """CHANGE COLUMN, or MODIFY COLUMN if `name` equals the name of `column`."""

    name: str
    column: Column
    position: ColumnPosition | None = None
    if_exists: bool = False

    def loses_data(self, schema: TableSchema, unsure: UnsureConversion) -> bool:
        before = schema.find(self.name)
        return before is not None and unsure(before.type, self.column.type) is not None


@dataclass(frozen=True, slots=True)
class RenameColumn(KeepingClause):
    name: str
    new_name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class SetDefault(KeepingClause):
    """ALTER COLUMN … SET DEFAULT, or DROP DEFAULT if `default` is None."""

    name: str
    default: Default | None
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AddPrimaryKey(KeepingClause):
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DropPrimaryKey(KeepingClause):
    pass


@dataclass(frozen=True, slots=True)
class AddUniqueKey(KeepingClause):
    key: UniqueKey


@dataclass(frozen=True, slots=True)
class AddIndex(KeepingClause):
    """ADD INDEX of an index that is not UNIQUE. Its name is "" if the statement gives none."""

    index: PlainIndex


@dataclass(frozen=True, slots=True)
class DropIndex(KeepingClause):
    """DROP INDEX. The parser does not know whether the index is UNIQUE."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameIndex(KeepingClause):
    name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class AddForeignKey(KeepingClause):
    key: ForeignKey


@dataclass(frozen=True, slots=True)
class DropForeignKey(KeepingClause):
    name: str


@dataclass(frozen=True, slots=True)
class SetEngine(KeepingClause):
    engine: str


@dataclass(frozen=True, slots=True)
class RenameTo(KeepingClause):
    name: TableName


@dataclass(frozen=True, slots=True)
class DefaultCharset(KeepingClause):
    """[DEFAULT] CHARACTER SET or COLLATE of a table: applies to columns added later, existing columns keep theirs."""

    charset: str
    collation: str | None = None


@dataclass(frozen=True, slots=True)
class ConvertCharset(KeepingClause):
    """CONVERT TO CHARACTER SET: changes the existing columns and the default of the table."""

    charset: str
    collation: str | None = None


# ---- clauses that remove or exchange rows. No row event reports these rows.


@dataclass(frozen=True, slots=True)
class TruncatePartition(RemovingClause):
    names: tuple[str, ...]
    """Empty means ALL."""


@dataclass(frozen=True, slots=True)
class DropPartition(RemovingClause):
    names: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ExchangePartition(RemovingClause):
    """Swaps the rows of the partition and of `table`."""

    name: str
    table: TableName
    validated: bool = True
    """False means WITHOUT VALIDATION: the partition may receive rows outside its definition."""


# ---- clauses that keep all rows


@dataclass(frozen=True, slots=True)
class AddPartitions(KeepingClause):
    """ADD PARTITION."""

    partitions: tuple[Partition, ...]
    count: int | None = None
    """The number of added partitions (HASH) if the clause has no definitions."""
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class ReorganizePartition(KeepingClause):
    """Replaces the named partitions with `partitions`. Without names it changes no definition."""

    names: tuple[str, ...]
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class CoalescePartition(KeepingClause):
    count: int
    """The number of removed partitions (HASH)."""


@dataclass(frozen=True, slots=True)
class PartitionBy(KeepingClause):
    """PARTITION BY. A clause about partitions that cannot be parsed is a PartitionBy with an unknown partitioning."""

    partitioning: Partitioning


@dataclass(frozen=True, slots=True)
class RemovePartitioning(KeepingClause):
    pass


# ---- other clauses


@dataclass(frozen=True, slots=True)
class NoRowEffect(KeepingClause):
    """A clause that changes neither rows nor columns, such as a foreign key, a comment or AUTO_INCREMENT."""

    what: str


@dataclass(frozen=True, slots=True)
class NotSupportedClause(KeepingClause):
    """A clause that may change rows or columns and that this version does not apply."""

    what: str
    of_rows: bool = False
    """The clause changes rows only."""

    def description(self, to_words: Callable[[str], str] = str) -> str:
        return f"{to_words(type(self).__name__)} {self.what}"


PartitionRowsClause: TypeAlias = TruncatePartition | DropPartition | ExchangePartition
PartitionDefinitionClause: TypeAlias = (
    AddPartitions | ReorganizePartition | CoalescePartition | PartitionBy | RemovePartitioning
)
Clause: TypeAlias = Annotated[
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
    | AddForeignKey
    | DropForeignKey
    | SetEngine
    | RenameTo
    | DefaultCharset
    | ConvertCharset
    | PartitionRowsClause
    | PartitionDefinitionClause
    | NoRowEffect
    | NotSupportedClause,
    BY_CLASS,
]
RowKeepingClause: TypeAlias = (
    NoRowEffect | AddIndex | AddForeignKey | DropForeignKey | SetEngine | DefaultCharset | PartitionDefinitionClause
)
"""The clauses that change neither rows nor columns."""


class SchemaConflictError(ValueError):
    """A clause does not fit the schema, so the schema is not the one that upstream had."""

    def __init__(self, clause: Clause, reason: str) -> None:
        super().__init__(f"{reason}: {shortened(clause.description())}")
        self.clause = clause
        self.reason = reason


# ---- statements


@dataclass(frozen=True, slots=True)
class CreateTable(BaseChange):
    name: TableName
    schema: TableSchema
    """Without columns if it is unknown."""
    if_not_exists: bool = False
    gaps: tuple[Gap, ...] = ()
    """Why the created table may lack rows."""
    baseline: str = ""
    """The id of the baseline with the table's rows, which replaces the table as the stream has it; empty for a statement."""

    def names(self) -> TableNames:
        return TableNames(touched=(self.name,), created=(self.name,))


@dataclass(frozen=True, slots=True)
class CreateTableLike(BaseChange):
    name: TableName
    source: TableName
    if_not_exists: bool = False

    def names(self) -> TableNames:
        return TableNames(touched=(self.name,), created=(self.name,), read=(self.source,))


@dataclass(frozen=True, slots=True)
class AlterTable(BaseChange):
    name: TableName
    clauses: tuple[Clause, ...]

    def names(self) -> TableNames:
        if all(isinstance(clause, RowKeepingClause) for clause in self.clauses):
            return TableNames(read=(self.name,))
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
    """One pair of RENAME TABLE. Several pairs become several changes, applied from left to right."""

    name: TableName
    new_name: TableName

    def names(self) -> TableNames:
        pair = (self.name, self.new_name)
        return TableNames(touched=pair, renamed=(pair,))


@dataclass(frozen=True, slots=True)
class TruncateTable(BaseChange):
    name: TableName

    def names(self) -> TableNames:
        return TableNames(touched=(self.name,), emptied=(self.name,))


@dataclass(frozen=True, slots=True)
class DropTable(BaseChange):
    name: TableName
    if_exists: bool = False

    def names(self) -> TableNames:
        return TableNames(touched=(self.name,), dropped=(self.name,))


@dataclass(frozen=True, slots=True)
class DropDatabase(BaseChange):
    database: str

    def drops(self, table: TableName) -> bool:
        return table.database == self.database

    def names(self) -> TableNames:
        return TableNames()


@dataclass(frozen=True, slots=True)
class RecoverTable(BaseChange):
    """RECOVER TABLE, or FLASHBACK TABLE with an optional `new_name`."""

    name: TableName
    new_name: TableName | None = None
    by_job: bool = False
    """BY JOB: of several tables that were dropped under the name, any may be meant."""

    def names(self) -> TableNames:
        recovered = (self.new_name or self.name,)
        return TableNames(touched=recovered, recovered=recovered, read=(self.name,) if self.new_name else ())


@dataclass(frozen=True, slots=True)
class RecoverDatabase(BaseChange):
    """FLASHBACK DATABASE with an optional `new_database`."""

    database: str
    new_database: str | None = None

    def names(self) -> TableNames:
        return TableNames()


@dataclass(frozen=True, slots=True)
class NoTableEffect(BaseChange):
    """A statement that changes neither rows nor columns of a table, such as CREATE DATABASE or CREATE VIEW."""

    what: str

    def names(self) -> TableNames:
        return TableNames()


@dataclass(frozen=True, slots=True)
class NotSupported(BaseChange):
    """A statement that may change tables and that this version cannot parse or apply."""

    reason: str
    name: TableName | None = None
    """The table of the statement, if known."""
    creates: bool = False
    """Whether the statement creates the table `name`."""
    everywhere: bool = False
    """Whether the statement may change any table."""

    def description(self, to_words: Callable[[str], str] = str) -> str:
        return f"{to_words(type(self).__name__)} {self.reason}"

    def names(self) -> TableNames:
        return TableNames() if self.name is None else TableNames(touched=(self.name,))


@dataclass(frozen=True, slots=True)
class OfSourceTable(BaseChange):
    """A statement about one source table of a merged mirror (`routes` with `merge`)."""

    name: TableName
    """The merged mirror."""
    source_table: TableName
    """The source table, by its upstream name."""
    change: SourceTableChange
    """The statement, with upstream names. The second table of a RENAME or a LIKE belongs to the same mirror."""

    def names(self) -> TableNames:
        inner, own = self.change.names(), (self.name,)
        return TableNames(
            touched=own if inner.touched else (),
            created=own if inner.added else (),
            read=own if inner.read and not inner.touched else (),
        )

    def tables_losing_data(
        self, schema_of: Callable[[TableName], TableSchema], unsure: UnsureConversion
    ) -> tuple[TableName, ...]:
        return (self.name,) if self.change.tables_losing_data(lambda _: schema_of(self.name), unsure) else ()

    def description(self, to_words: Callable[[str], str] = str) -> str:
        return f"{self.name}: {self.change.description(to_words)}"


SourceTableChange: TypeAlias = Annotated[
    CreateTable | CreateTableLike | AlterTable | RenameTable | TruncateTable | DropTable | NotSupported, BY_CLASS
]
"""The statements that `OfSourceTable` may hold."""
SchemaChange: TypeAlias = Annotated[
    CreateTable
    | CreateTableLike
    | AlterTable
    | RenameTable
    | TruncateTable
    | DropTable
    | DropDatabase
    | RecoverTable
    | RecoverDatabase
    | NoTableEffect
    | NotSupported
    | OfSourceTable,
    BY_CLASS,
]
