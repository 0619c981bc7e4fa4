"""DDL events in the order of the stream, and the boundaries that they draw through the rows of each table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import assert_never

from cdc_pipeline.dialects.traits import Trait, trait_of
from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.mysql.ddl.statements import changes_of
from cdc_pipeline.mysql.model.schema_changes import (
    AlterTable,
    CreateTable,
    CreateTableAsSelect,
    CreateTableLike,
    DropDatabase,
    DropTable,
    ExchangePartition,
    NoTableEffect,
    NotSupported,
    OfShard,
    RecoverDatabase,
    RecoverTable,
    RenameTable,
    RenameTo,
    RowKeepingClause,
    SchemaChange,
    TruncateTable,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Row

    from cdc_pipeline.mysql.model.table import TableName


@dataclass(frozen=True)
class DdlEvent:
    """One DDL message with its parsed changes. `exact_ts` is false where `commit_ts` is only `es << 18`. `message_id` is the
    number of Canal's batch.

    `returning`: an earlier cut has seen it, and left out what concerned tables that waited (`policy`).
    `notes` are said of it beside what its changes do.
    """

    topic: str
    partition: int
    offset: int
    database: str
    table: str
    commit_ts: int
    exact_ts: bool
    es: int
    ts: int | None
    sql: str
    changes: tuple[SchemaChange, ...]
    dialect: str = ""
    message_id: int | None = None
    returning: bool = False
    notes: tuple[str, ...] = ()

    @property
    def identity(self) -> tuple[int, str, str, str]:
        """A DDL sent twice is one DDL (PEERS §4.2): same time, statement and table."""
        return (self.commit_ts, self.sql, self.database, self.table)

    @property
    def position(self) -> tuple[str, int, int]:
        return (self.topic, self.partition, self.offset)

    @property
    def mark(self) -> str:
        """Tells what the event made or ended from what any other did: times of Canal are whole seconds."""
        place = "" if self.exact_ts else f".{self.partition}.{self.offset}"
        return f"{self.commit_ts}{place}"

    @property
    def commit_ms(self) -> int:
        """When it happened; `commit_ts` of DataWorks is an order, not a time."""
        return self.es

    def names(self) -> tuple[TableName, ...]:
        """The tables whose rows lie before or after this event, in the order of the statement."""
        return tuple(dict.fromkeys(name for change in self.changes for name in touched_names(change)))


def ddl_event(row: Row) -> DdlEvent:
    """A row of `ddl_history` as an event, its statement parsed again: the statement is the truth, not what was noted."""
    return DdlEvent(
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        database=row["database"] or "",
        table=row["table"] or "",
        commit_ts=row["commit_ts"],
        exact_ts=row["exact_ts"],
        es=row["es"],
        ts=row["ts"],
        sql=row["sql"] or "",
        changes=changes_of(row["kind"], row["database"] or "", row["table"] or "", row["sql"] or ""),
        dialect=row["dialect"] or "",
        message_id=row.asDict().get("message_id"),  # a lake of 0.1.0 has none
    )


def in_order(events: Iterable[DdlEvent]) -> list[DdlEvent]:
    """By commit TSO, then by position: two DDLs of one statement share a TSO and keep the order they were sent in.

    Those of Canal are in the order in which they were sent, by its clock: their `es` is when a statement began, and one that
    has waited for its table is logged after others that began later.
    """
    times: dict[tuple[str, int, int], tuple[int, int]] = {}
    newest: dict[tuple[str, int], int] = {}
    found = sorted(events, key=lambda event: event.position)
    for event in found:
        time = event.commit_ts
        if trait_of(event.dialect, Trait.IN_LOG_ORDER) and event.ts is not None:
            time = max(event.ts << TSO_SHIFT, newest.get(event.position[:2], 0))
            newest[event.position[:2]] = time
        times[event.position] = (time, event.message_id or 0)
    return sorted(found, key=lambda event: times[event.position])


def touched_names(change: SchemaChange) -> tuple[TableName, ...]:
    """The tables whose rows lie before or after this change. A whole database is named by none of its tables."""
    match change:
        case OfShard():
            return (change.name,) if touched_names(change.change) else ()
        case AlterTable():
            if all(isinstance(clause, RowKeepingClause) for clause in change.clauses):
                return ()
            moved = tuple(clause.name for clause in change.clauses if isinstance(clause, RenameTo))
            others = tuple(clause.table for clause in change.clauses if isinstance(clause, ExchangePartition))
            return (change.name, *moved, *others)
        case RenameTable():
            return (change.name, change.new_name)
        case RecoverTable():
            return (change.new_name or change.name,)
        case CreateTable() | CreateTableLike() | CreateTableAsSelect() | TruncateTable() | DropTable():
            return (change.name,)
        case NotSupported():
            return () if change.name is None else (change.name,)
        case DropDatabase() | RecoverDatabase() | NoTableEffect():
            return ()
        case _:
            assert_never(change)


def made_names(change: SchemaChange) -> tuple[TableName, ...]:
    """The names that this change gives to a table which had none, or another."""
    match change:
        case CreateTable() | CreateTableLike() | CreateTableAsSelect():
            return (change.name,)
        case OfShard():
            return (change.name,) if made_names(change.change) else ()
        case RenameTable():
            return (change.new_name,)
        case AlterTable():
            return tuple(clause.name for clause in change.clauses if isinstance(clause, RenameTo))
        case (
            TruncateTable()
            | DropTable()
            | DropDatabase()
            | RecoverTable()
            | RecoverDatabase()
            | NoTableEffect()
            | NotSupported()
        ):
            return ()
        case _:
            assert_never(change)


def renamed_names(change: SchemaChange) -> tuple[tuple[TableName, TableName], ...]:
    """The names that tables had before this change, each with the one that it has after it."""
    if isinstance(change, RenameTable):
        return ((change.name, change.new_name),)
    if isinstance(change, AlterTable):
        return tuple((change.name, clause.name) for clause in change.clauses if isinstance(clause, RenameTo))
    return ()


def begun_names(change: SchemaChange) -> tuple[TableName, ...]:
    """`made_names`, and those that come back."""
    if isinstance(change, RecoverTable):
        return (change.new_name or change.name,)
    return made_names(change)


def ended_names(change: SchemaChange) -> tuple[TableName, ...]:
    """The names that no table has after this change. A whole database is named by none of its tables."""
    match change:
        case DropTable() | RenameTable():
            return (change.name,)
        case AlterTable():
            return (change.name,) if any(isinstance(clause, RenameTo) for clause in change.clauses) else ()
        case (
            CreateTable()
            | CreateTableLike()
            | CreateTableAsSelect()
            | TruncateTable()
            | DropDatabase()
            | RecoverTable()
            | RecoverDatabase()
            | NoTableEffect()
            | NotSupported()
            | OfShard()
        ):
            return ()
        case _:
            assert_never(change)


def creates(event: DdlEvent, name: TableName) -> bool:
    """Whether the event brings the name into being, so that no row of the same millisecond can lie before it."""
    return any(name in made_names(change) for change in event.changes)
