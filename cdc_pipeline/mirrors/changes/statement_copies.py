"""Identities of statements: equal for the copies of one statement, different for equal statements.

At one TSO the same statement is one statement. Canal's time is a whole second, in which a table may be dropped or truncated
twice: there the n-th of several equal statements in one delivery (`deliveries`) is a copy of the n-th in another.

Inside one delivery an equal statement is new if it can happen again: another statement about its tables lies in between,
what it renames exists again, and the new names are free; or it can follow itself, as TRUNCATE and CREATE OR REPLACE TABLE
can. Otherwise it is a copy from a batch that Canal resent (canal-facts 50). A RENAME or an exchange that can happen again
may be a copy all the same (`undoes_itself`): nothing tells a log that was rotated twice from a batch that was sent twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, dialect_has_trait
from cdc_pipeline.mirrors.changes.deliveries import RESENT_MS, sent_records, with_deliveries
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mysql.model.change_names import folded
from cdc_pipeline.mysql.model.schema_changes import (
    AlterTable,
    DropDatabase,
    ExchangePartition,
    SchemaChange,
    TruncatePartition,
    TruncateTable,
)
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import POSITION, Position

Identity: TypeAlias = tuple[int, str, str, str, int]
DeliveriesOf: TypeAlias = Callable[[Sequence[DdlEvent]], Mapping[Position, tuple[int, ...]]]
"""Statements → the delivery of each in its partition. Its last number is the delivery's `reach`."""


def statement_identities(events: Iterable[DdlEvent], deliveries_of: DeliveriesOf) -> dict[Position, Identity]:
    """Maps the position of each statement to its identity. Equal identities mark copies of one statement.

    If the first delivery went on to a later `es`, it had all of them (`copies`).
    """
    in_order = sorted({event.position: event for event in events}.values(), key=lambda event: event.position)
    groups: dict[tuple[int, str, str, str], list[DdlEvent]] = defaultdict(list)
    for event in in_order:
        groups[event.identity].append(event)
    repeated = [event for equal in groups.values() if len(equal) > 1 for event in equal if _has_batch_number(event)]
    deliveries = deliveries_of(repeated) if repeated else {}
    numbers: dict[Position, int] = {}
    copies: set[Position] = set()  # inside one delivery
    last: dict[object, DdlEvent] = {}
    most: dict[object, int] = defaultdict(lambda: 1)
    for event in in_order:
        first, found = deliveries.get(groups[event.identity][0].position), deliveries.get(event.position)
        number = 1
        if _has_batch_number(event):
            delivery = (event.identity, *event.position[:2], found)
            if delivery in last:
                others = (other for other in in_order if other.position not in copies)
                same = [other for other in others if deliveries.get(other.position, found) == found]
                is_new = _is_new(last[delivery], event, same)
                number = numbers[last[delivery].position] + is_new
                copies |= set() if is_new else {event.position}
            last[delivery] = event
            if found == first:
                most[event.identity] = max(most[event.identity], number)
            elif first is not None and first[-1] > event.commit_ts:
                number = min(number, most[event.identity])
        numbers[event.position] = number
    return {event.position: (*event.identity, numbers[event.position]) for event in in_order}


def _has_batch_number(event: DdlEvent) -> bool:
    return dialect_has_trait(event.dialect, Trait.IN_LOG_ORDER)


def _is_new(last: DdlEvent, event: DdlEvent, delivered: Sequence[DdlEvent]) -> bool:
    """Whether `event` happened after the equal statement `last`, and is no copy of it. `delivered`: the statements of their
    delivery without copies."""
    if _can_follow_itself(event.changes):
        return True
    between = [
        other
        for other in delivered
        if last.position < other.position < event.position and other.identity != event.identity
    ]
    old, new = ({folded(pair[side]) for pair in _renamed(event.changes)} for side in (0, 1))
    names = [change.names() for other in between for change in other.changes]
    removed = {folded(name) for change in names for name in change.removed}
    added = {folded(name) for change in names for name in change.added}
    dropped = {database for other in between for database in _dropped_databases(other)}
    is_free = all(name in removed or name.database in dropped for name in new - old)
    return any(_share_a_table(event, other) for other in between) and old - new <= added and is_free


def undoes_itself(changes: Sequence[SchemaChange]) -> bool:
    """Whether tables have other rows if the changes happen once more."""
    alters = [change for change in changes if isinstance(change, AlterTable)]
    return bool(_renamed(changes)) or any(
        isinstance(clause, ExchangePartition) for change in alters for clause in change.clauses
    )


def _renamed(changes: Sequence[SchemaChange]) -> list[tuple[TableName, TableName]]:
    return [pair for change in changes for pair in change.names().renamed]


def _share_a_table(one: DdlEvent, other: DdlEvent) -> bool:
    names, others = _folded_names(one), _folded_names(other)
    return bool(
        names & others
        or _dropped_databases(one) & {name.database for name in others}
        or _dropped_databases(other) & {name.database for name in names}
    )


def _folded_names(event: DdlEvent) -> set[TableName]:
    return set(map(folded, event.names()))


def _dropped_databases(event: DdlEvent) -> set[str]:
    return {change.database.lower() for change in event.changes if isinstance(change, DropDatabase)}


def _can_follow_itself(changes: Sequence[SchemaChange]) -> bool:
    """Whether the changes are valid, and have an effect, directly after themselves."""
    pairs = _renamed(changes)
    swaps = bool(pairs) and {old for old, _ in pairs} == {new for _, new in pairs}
    dropped = {name for change in changes for name in change.names().dropped}
    replaces = any(name in dropped for change in changes for name in change.names().created)  # CREATE OR REPLACE TABLE
    return swaps or replaces or any(map(_moves_rows, changes))


def _moves_rows(change: SchemaChange) -> bool:
    """Whether each execution of the change removes or exchanges rows."""
    if isinstance(change, AlterTable):
        return any(isinstance(clause, (TruncatePartition, ExchangePartition)) for clause in change.clauses)
    return isinstance(change, TruncateTable)


def statement_deliveries(
    log: DataFrame, history: DataFrame, events: Sequence[DdlEvent]
) -> dict[Position, tuple[int, ...]]:
    """The delivery of each of these statements of Canal. `log` is `change_log`, `history` is `ddl_history`.

    A statement of a binlog that was played again counts to the delivery of the first equal one (`deliveries`).
    """
    times = [event.ts for event in events if event.ts is not None]
    if not times:
        return {}
    near = F.col("topic").isin(*sorted({event.topic for event in events}))
    near &= F.col("ts").between(min(times) - RESENT_MS, max(times))
    offsets = F.col("offset").isin(*sorted({event.offset for event in events}))
    records = sent_records(log.where(near), history.where(near))
    rows = with_deliveries(records).where(offsets).select(*POSITION, "delivery", "pauses", "reach", "ahead").distinct()
    collected = {Position(*row[:3]): row for row in rows.collect()}
    found = {place: (*row["delivery"], row["pauses"], row["reach"]) for place, row in collected.items()}
    equal: dict[object, list[tuple[tuple[int, ...], int]]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.position):
        if (row := collected.get(event.position)) is None:
            continue
        delivery, ahead, before = found[event.position], row["ahead"] or 0, equal[event.identity]
        if before and ahead > max(event.commit_ts, *(other for _, other in before)):
            first = before[0][0]
            # in a delivery that has sent it already it may be of a batch that Canal sent twice
            if ahead > first[-1] or delivery not in (other for other, _ in before):
                found[event.position] = first
        before.append((delivery, ahead))
    return found
