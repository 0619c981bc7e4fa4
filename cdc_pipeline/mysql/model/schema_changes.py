"""What a DDL statement says, as values: one statement becomes one or more `SchemaChange`.

The parser (`ddl_parser`) makes them, `evolution` folds them over a `TableSchema`, and `mirrors` carries them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

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
    from cdc_pipeline.gaps import Gap
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
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameColumn:
    name: str
    new_name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class SetDefault:
    """ALTER COLUMN … SET DEFAULT, or DROP DEFAULT where `default` is None."""

    name: str
    default: Default | None
    if_exists: bool = False


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
class AddIndex:
    """An index that is no key; it has the name "" where the statement gives none."""

    index: PlainIndex


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
class DefaultCharset:
    """[DEFAULT] CHARACTER SET or COLLATE of a table: what columns that come later have. Those that are there keep theirs."""

    charset: str
    collation: str | None = None


@dataclass(frozen=True, slots=True)
class ConvertCharset:
    """CONVERT TO CHARACTER SET: the columns that are there, and the default."""

    charset: str
    collation: str | None = None


@dataclass(frozen=True, slots=True)
class NoRowEffect:
    """A clause that changes neither rows nor columns: a foreign key, a comment, AUTO_INCREMENT, ANALYZE PARTITION …"""

    what: str


@dataclass(frozen=True, slots=True)
class NotSupportedClause:
    """A clause that may change rows or columns, and that this version does not apply."""

    what: str


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
class CreateTable:
    """`gaps` are reasons why the table made may lack rows."""

    name: TableName
    schema: TableSchema
    if_not_exists: bool = False
    gaps: tuple[Gap, ...] = ()


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
    """`tables` are the mirrors of its tables where those have names of their own; None where they have upstream's."""

    database: str
    tables: frozenset[TableName] | None = None

    def has(self, mirror: TableName) -> bool:
        return mirror.database == self.database if self.tables is None else mirror in self.tables


@dataclass(frozen=True, slots=True)
class CreateTableAsSelect:
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


@dataclass(frozen=True, slots=True)
class RecoverTable:
    """RECOVER TABLE, or FLASHBACK TABLE with a `new_name` or without."""

    name: TableName
    new_name: TableName | None = None


@dataclass(frozen=True, slots=True)
class RecoverDatabase:
    """FLASHBACK DATABASE, with a `new_database` or without."""

    database: str
    new_database: str | None = None


@dataclass(frozen=True, slots=True)
class NoTableEffect:
    """A statement that changes no table's rows or columns: CREATE or ALTER DATABASE, views, …"""

    what: str


@dataclass(frozen=True, slots=True)
class NotSupported:
    """A statement that may change tables, and that this version cannot read or apply; `reason` says which and why.

    `creates`: it brings the table `name` into being. `everywhere`: it may change any table.
    """

    reason: str
    name: TableName | None = None
    creates: bool = False
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class OfShard:
    """What a statement does to one of the tables of the merged mirror `name`: `shard` is upstream's name for it, and
    `change` is by upstream's names. A RenameTable of it stays in the mirror."""

    name: TableName
    shard: TableName
    change: ShardChange


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
