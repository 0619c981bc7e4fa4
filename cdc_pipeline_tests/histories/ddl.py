"""DDL statements and their effect on tables and rows. DDL emits no row changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from cdc_pipeline_tests.histories.shapes import Partitioning, Row, Table
from cdc_pipeline_tests.histories.typed_texts import converted, labels

Rows: TypeAlias = dict[Table, dict[int, Row]]
"""The existing tables. The rows of each are by row id."""

FIRST = ""
"""As the place of a column: before all others. Other places are the name of the preceding column, or None for the end."""


@dataclass(frozen=True)
class Column:
    """A column as ADD, MODIFY and CHANGE define it. `default` is the value, not its SQL. None: no default."""

    name: str
    type: str
    not_null: bool = False
    default: str | None = None

    @property
    def filling(self) -> str | None:
        """The value of an added column in existing rows."""
        if self.default is not None or not self.not_null:
            return self.default
        if self.type.startswith("enum"):
            return labels(self.type)[0]
        if self.type.startswith("time"):
            return converted("00:00:00", self.type)
        return converted("0", self.type) if self.type.startswith(("int", "bigint", "decimal")) else ""


@dataclass(frozen=True)
class AddColumn:
    column: Column
    place: str | None = None


@dataclass(frozen=True)
class DropColumn:
    name: str


@dataclass(frozen=True)
class RenameColumn:
    name: str
    new_name: str


@dataclass(frozen=True)
class ChangeColumn:
    """CHANGE COLUMN, or MODIFY COLUMN if the name does not change."""

    name: str
    column: Column
    place: str | None = None


@dataclass(frozen=True)
class DropKey:
    """DROP PRIMARY KEY. Its columns stay NOT NULL."""


@dataclass(frozen=True)
class AddKey:
    columns: tuple[str, ...]


@dataclass(frozen=True)
class EmptyParts:
    """TRUNCATE PARTITION, or DROP PARTITION if `drop`."""

    names: tuple[str, ...]
    drop: bool


@dataclass(frozen=True)
class Repartition:
    """ADD PARTITION, or REORGANIZE PARTITION of `parts`. The rows do not change."""

    partitioning: Partitioning
    added: int = 0
    parts: tuple[str, ...] = ()


Clause: TypeAlias = "AddColumn | DropColumn | RenameColumn | ChangeColumn | DropKey | AddKey | EmptyParts | Repartition"


@dataclass(frozen=True)
class CreateTable:
    table: Table

    @property
    def tables(self) -> tuple[Table, ...]:
        return (self.table,)

    def run(self, rows: Rows) -> None:
        rows[self.table] = {}


@dataclass(frozen=True)
class CreateLike(CreateTable):
    source: Table

    @property
    def tables(self) -> tuple[Table, ...]:
        return (self.table, self.source)


@dataclass(frozen=True)
class AlterTable:
    before: Table
    after: Table
    clauses: tuple[Clause, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        return (self.after,)

    def run(self, rows: Rows) -> None:
        gone = {name for clause in self.clauses if isinstance(clause, EmptyParts) for name in clause.names}
        old = rows.pop(self.before)
        rows[self.after] = {
            number: self._converted(row) for number, row in old.items() if self.before.part_of(row) not in gone
        }

    def _converted(self, row: Row) -> Row:
        names = _new_names(self.clauses)
        found = {names.get(name, name): value for name, value in row.items()}
        for clause in self.clauses:
            if isinstance(clause, AddColumn):
                found[clause.column.name] = clause.column.filling
            elif isinstance(clause, ChangeColumn):
                found[clause.column.name] = converted(found[clause.column.name], clause.column.type)
        return {name: found[name] for name in self.after.names}


@dataclass(frozen=True)
class RenameTables:
    """The pairs of one RENAME TABLE, from left to right."""

    pairs: tuple[tuple[Table, Table], ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        return tuple(table for _, new in self.pairs for table in (new,)) + tuple(old for old, _ in self.pairs)

    def run(self, rows: Rows) -> None:
        for old, new in self.pairs:
            rows[new] = rows.pop(old)


@dataclass(frozen=True)
class TruncateTable:
    table: Table

    @property
    def tables(self) -> tuple[Table, ...]:
        return (self.table,)

    def run(self, rows: Rows) -> None:
        rows[self.table] = {}


@dataclass(frozen=True)
class DropTables:
    tables: tuple[Table, ...]

    def run(self, rows: Rows) -> None:
        for table in self.tables:
            del rows[table]


@dataclass(frozen=True)
class DropDatabase(DropTables):
    database: str


@dataclass(frozen=True)
class CreateDatabase:
    database: str
    tables: tuple[Table, ...] = ()

    def run(self, rows: Rows) -> None:
        pass


@dataclass(frozen=True)
class ExchangePartition:
    """Exchanges the rows of one partition with those of a table of the same shape."""

    table: Table
    part: str
    other: Table

    @property
    def tables(self) -> tuple[Table, ...]:
        return (self.table, self.other)

    def run(self, rows: Rows) -> None:
        inside = {number: row for number, row in rows[self.table].items() if self.table.part_of(row) == self.part}
        outside = {number: row for number, row in rows[self.table].items() if number not in inside}
        rows[self.table], rows[self.other] = outside | rows[self.other], inside


Statement: TypeAlias = (
    "CreateTable | AlterTable | RenameTables | TruncateTable | DropTables | CreateDatabase | ExchangePartition"
)


def alter(table: Table, *clauses: Clause) -> AlterTable:
    return AlterTable(table, _altered(table, clauses), clauses)


def _altered(table: Table, clauses: tuple[Clause, ...]) -> Table:
    names = _new_names(clauses)

    def renamed(columns: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.get(name, name) for name in columns)

    columns = [(names.get(name, name), words) for name, words in table.columns]
    primary_key, not_null = renamed(table.primary_key), {names.get(name, name) for name in table.not_null}
    partitioning = table.partitioning
    for clause in clauses:
        if isinstance(clause, (AddColumn, ChangeColumn)):
            column = clause.column
            at = next((at for at, (name, _) in enumerate(columns) if name == column.name), len(columns))
            del columns[at : at + 1]
            if clause.place is not None:
                at = 0 if clause.place == FIRST else 1 + [name for name, _ in columns].index(clause.place)
            columns.insert(at, (column.name, column.type))
            (not_null.add if column.not_null else not_null.discard)(column.name)
        elif isinstance(clause, DropColumn):
            columns = [column for column in columns if column[0] != clause.name]
            not_null.discard(clause.name)
        elif isinstance(clause, DropKey):
            not_null |= set(primary_key)
            primary_key = ()
        elif isinstance(clause, AddKey):
            primary_key = clause.columns
        elif isinstance(clause, Repartition):
            partitioning = clause.partitioning
        elif isinstance(clause, EmptyParts) and clause.drop:
            assert partitioning is not None
            left = [
                part
                for part in zip(partitioning.names, partitioning.bounds, strict=True)
                if part[0] not in clause.names
            ]
            partitioning = replace(
                partitioning, names=tuple(name for name, _ in left), bounds=tuple(bound for _, bound in left)
            )
    clustered = table.clustered and not any(isinstance(clause, (DropKey, AddKey)) for clause in clauses)
    return replace(
        table,
        columns=tuple(columns),
        primary_key=primary_key,
        unique_not_null=renamed(table.unique_not_null),
        clustered=clustered,
        not_null=frozenset(not_null),
        partitioning=partitioning,
    )


def _new_names(clauses: tuple[Clause, ...]) -> dict[str, str]:
    """Old name → new name, for all clauses of a statement at once, because two columns may swap their names."""
    found = {clause.name: clause.new_name for clause in clauses if isinstance(clause, RenameColumn)}
    return found | {clause.name: clause.column.name for clause in clauses if isinstance(clause, ChangeColumn)}
