"""Identities of statements: equal for the copies of one statement, different for equal statements.

At one TSO the same statement is one statement. Canal's time is a whole second, in which a table may be dropped or
truncated twice. There the n-th of several equal statements in one delivery is a copy of the n-th in another delivery, as
with rows (`redeliveries`). A new delivery starts where Canal's batch numbers restart (canal-facts 3). Statements that Canal
resends with their former clock are recognized by it (`kept_clocks`).

Inside one delivery an equal statement is new if it can happen again: another statement about its tables lies in between, or
it can follow itself, as TRUNCATE and CREATE OR REPLACE TABLE can. Otherwise it is a copy from a batch that Canal resent
(canal-facts 50).
"""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, dialect_has_trait
from cdc_pipeline.mirrors.deliveries.canal_deliveries import restart_times, unnumbered_starts
from cdc_pipeline.mirrors.deliveries.copies import PARTITION
from cdc_pipeline.mirrors.deliveries.kept_clocks import sent_records, with_kept_clocks
from cdc_pipeline.mysql.model.change_names import folded
from cdc_pipeline.mysql.model.schema_changes import (
    AlterTable,
    DropDatabase,
    ExchangePartition,
    TruncatePartition,
    TruncateTable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mysql.model.schema_changes import SchemaChange
    from cdc_pipeline.mysql.model.table import TableName
    from cdc_pipeline.positions import Position

    Identity: TypeAlias = tuple[int, str, str, str, int]
    Offsets: TypeAlias = Mapping[tuple[str, int], Sequence[int]]
    """(topic, partition) to offsets, ascending."""


@dataclass(frozen=True)
class Restarts:
    """Where Canal restarts."""

    renewed: Offsets = field(default_factory=dict)
    """The restarts after which messages have a new clock."""
    kept: Offsets = field(default_factory=dict)
    """The restarts after which Canal resends messages with their former clock."""


if TYPE_CHECKING:
    RestartsOf: TypeAlias = Callable[[Sequence[DdlEvent]], Restarts]
    """Returns the restarts between the given statements."""


def statement_identities(events: Iterable[DdlEvent], restarts_of: RestartsOf) -> dict[Position, Identity]:
    """Maps the position of each statement to its identity. Equal identities mark copies of one statement."""
    in_order = sorted({event.position: event for event in events}.values(), key=lambda event: event.position)
    groups: dict[tuple[int, str, str, str], list[DdlEvent]] = defaultdict(list)
    for event in in_order:
        groups[event.identity].append(event)
    repeated = [event for equal in groups.values() if len(equal) > 1 for event in equal if _has_batch_number(event)]
    restarts = restarts_of(repeated) if repeated else Restarts()
    originals = {event.position: _kept_original(event, groups[event.identity], restarts.kept) for event in repeated}
    firsts = [event for event in in_order if originals.get(event.position) is None]
    numbers: dict[Position, int] = {}
    for equal in groups.values():
        earlier: list[DdlEvent] = []
        for event in equal:
            if (original := originals.get(event.position)) is not None:
                numbers[event.position] = numbers[original.position]
            else:
                numbers[event.position] = _ordinal(event, earlier, firsts, restarts.renewed, numbers)
                earlier.append(event)
    return {event.position: (*event.identity, numbers[event.position]) for event in in_order}


def _has_batch_number(event: DdlEvent) -> bool:
    return dialect_has_trait(event.dialect, Trait.NUMBERS_BATCHES)


def _kept_original(event: DdlEvent, equal: Sequence[DdlEvent], kept: Offsets) -> DdlEvent | None:
    """The first sending of a statement that Canal resent with its clock, else None. Of equal ones with one clock, the n-th
    after a restart is the n-th before it."""
    offsets = kept.get(event.position[:2], ())
    same_clock = [other for other in equal if other.position[:2] == event.position[:2] and other.ts == event.ts]
    delivery = bisect(offsets, event.offset)
    nth = sum(bisect(offsets, other.offset) == delivery and other.position < event.position for other in same_clock)
    before = [other for other in same_clock if bisect(offsets, other.offset) < delivery]
    return before[nth] if event.ts is not None and nth < len(before) else None


def _ordinal(
    event: DdlEvent,
    earlier: Sequence[DdlEvent],
    in_order: Sequence[DdlEvent],
    restarts: Offsets,
    numbers: Mapping[Position, int],
) -> int:
    """The number of the statement among equal ones of its delivery, from 1. Copies have the same number."""
    if not _has_batch_number(event) or not earlier or earlier[-1].position[:2] != event.position[:2]:
        return 1
    last = earlier[-1]
    offsets = restarts.get(event.position[:2], ())
    if bisect(offsets, last.offset) != bisect(offsets, event.offset):
        return 1
    return numbers[last.position] + _is_new(last, event, in_order)


def _is_new(last: DdlEvent, event: DdlEvent, in_order: Sequence[DdlEvent]) -> bool:
    """Whether `event` happened after the equal statement `last` of the same delivery, and is no copy of it."""
    return _can_follow_itself(event.changes) or any(
        last.position < other.position < event.position
        and other.identity != event.identity
        and _share_a_table(event, other)
        for other in in_order
    )


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
    pairs = [pair for change in changes for pair in change.names().renamed]
    swaps = bool(pairs) and {old for old, _ in pairs} == {new for _, new in pairs}
    dropped = {name for change in changes for name in change.names().dropped}
    replaces = any(name in dropped for change in changes for name in change.names().created)  # CREATE OR REPLACE TABLE
    return swaps or replaces or any(map(_moves_rows, changes))


def _moves_rows(change: SchemaChange) -> bool:
    """Whether each execution of the change removes or exchanges rows."""
    if isinstance(change, AlterTable):
        return any(isinstance(clause, (TruncatePartition, ExchangePartition)) for clause in change.clauses)
    return isinstance(change, TruncateTable)


_RESENT_MS = 600_000
"""How far back a restarted Canal may resend. Usually some seconds (canal-facts 51)."""


def canal_restarts(log: DataFrame, history: DataFrame, events: Sequence[DdlEvent]) -> Restarts:
    """The restarts of Canal between the given statements. `log` is `change_log`, `history` is `ddl_history`.

    A restart shows in the partition (`_restart_offsets`) or in the topic (`restart_times`).
    """
    renewed: dict[tuple[str, int], list[int]] = {}
    kept: dict[tuple[str, int], list[int]] = {}
    for topic in sorted({event.topic for event in events}):
        here = [event for event in events if event.topic == topic]
        times = _restart_times(log, history, here)
        for partition in sorted({event.partition for event in here}):
            inside = [event for event in here if event.partition == partition]
            later = [[event.offset for event in inside if (event.ts or 0) >= time] for time in times]
            found, kept[topic, partition] = _restart_offsets(log, history, inside)
            renewed[topic, partition] = sorted({*found, *map(min, filter(None, later))})
    return Restarts(renewed, kept)


def _restart_times(log: DataFrame, history: DataFrame, events: Sequence[DdlEvent]) -> list[int]:
    """The times (ms) at which Canal restarted, up to the last of these statements of one topic."""
    times = [event.ts for event in events if event.ts is not None]
    if not times:
        return []
    near = (F.col("topic") == events[0].topic) & F.col("ts").between(min(times) - _RESENT_MS, max(times))
    found = restart_times(log.where(near), history.where(near)).first()
    return [] if found is None else list(found["restart_times"])


def _restart_offsets(log: DataFrame, history: DataFrame, events: Sequence[DdlEvent]) -> tuple[list[int], list[int]]:
    """The offsets around these statements of one partition at which Canal restarts with a new clock, and those at which it
    begins to resend with its former clock.

    With a new clock, its batch numbers decrease. Without batch numbers, the content of the messages around the statements
    shows it (`unnumbered_starts`).
    """
    offsets, times = [event.offset for event in events], [event.ts for event in events if event.ts is not None]
    here = (F.col("topic") == events[0].topic) & (F.col("partition") == events[0].partition)
    is_numbered = all(event.message_id is not None for event in events)
    if is_numbered or not times:
        inside = here & F.col("offset").between(min(offsets), max(offsets))
    else:
        inside = here & (F.col("ts") >= min(times) - _RESENT_MS)
    records = with_kept_clocks(sent_records(log.where(inside), history.where(inside)))
    by_offset = Over.partitionBy(*PARTITION).orderBy("offset", "row")
    previous = {name: F.lag(name).over(by_offset) for name in ("kept_clocks", "message_id")}
    keeps = F.col("kept_clocks") > F.coalesce(previous["kept_clocks"], F.lit(0))
    decreases = (F.col("message_id") < previous["message_id"]) & ~keeps
    kept = records.withColumn("starts", keeps).where("starts").select("offset").collect()
    renewed = records.withColumn("starts", decreases).where("starts").select("offset").collect()
    if not is_numbered:
        renewed += unnumbered_starts(records).select("offset").collect()
    return sorted({row["offset"] for row in renewed}), sorted(row["offset"] for row in kept)
