"""DDL events in the order of the stream, and the boundaries that they draw through the rows of each table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_pipeline.dialects.traits import Trait, trait_of
from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.mysql.ddl.statements import changes_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Row

    from cdc_pipeline.mysql.model.schema_changes import SchemaChange
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
        return tuple(dict.fromkeys(name for change in self.changes for name in change.names().touched))


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
        message_id=row["message_id"],
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


def creates(event: DdlEvent, name: TableName) -> bool:
    """Whether the event brings the name into being, so that no row of the same millisecond can lie before it."""
    return any(name in change.names().added for change in event.changes)
