"""Statements that came twice, told from two equal statements.

With a TSO a statement has its time for itself: the same statement at the same TSO is one. Canal's time is a whole second,
in which a table may well be dropped twice or emptied twice. There the n-th of equal statements in one delivery is the n-th
in another one, as with rows (`redeliveries`). A new delivery begins where Canal's batch numbers begin again (canal-facts 3).

Inside one delivery an equal statement is a new one where it can have happened again: another statement about its tables lies
between, or it may follow itself, as a TRUNCATE does. Else it is a copy, of a batch that Canal sent again (canal-facts 50).
"""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, trait_of
from cdc_pipeline.mirrors.changes.canal_deliveries import new_beginnings
from cdc_pipeline.mirrors.model.ddl_events import renamed_names
from cdc_pipeline.mysql.model.schema_changes import AlterTable, ExchangePartition, TruncatePartition, TruncateTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mysql.model.schema_changes import SchemaChange

    Identity: TypeAlias = tuple[int, str, str, str, int]
    Restarts: TypeAlias = Mapping[tuple[str, int], Sequence[int]]
    """By topic and partition the offsets, in order, at which Canal's batch numbers begin again."""
    RestartsOf: TypeAlias = Callable[[Sequence[DdlEvent]], Restarts]
    """The restarts between these statements."""


def statement_identities(events: Iterable[DdlEvent], restarts_of: RestartsOf) -> dict[tuple[str, int, int], Identity]:
    """By position what tells each statement from others: those with the same are copies of one."""
    in_turn = sorted({event.position: event for event in events}.values(), key=lambda event: event.position)
    equal: dict[tuple[int, str, str, str], list[DdlEvent]] = defaultdict(list)
    for event in in_turn:
        equal[event.identity].append(event)
    open_ones = [event for found in equal.values() if len(found) > 1 for event in found if _in_numbered_batch(event)]
    restarts = restarts_of(open_ones) if open_ones else {}
    numbers: dict[tuple[str, int, int], int] = {}
    for found in equal.values():
        for place, event in enumerate(found):
            numbers[event.position] = _number(event, found[:place], in_turn, restarts, numbers)
    return {event.position: (*event.identity, numbers[event.position]) for event in in_turn}


def _in_numbered_batch(event: DdlEvent) -> bool:
    return trait_of(event.dialect, Trait.NUMBERS_BATCHES)


def _number(
    event: DdlEvent,
    before: Sequence[DdlEvent],
    in_turn: Sequence[DdlEvent],
    restarts: Restarts,
    numbers: Mapping[tuple[str, int, int], int],
) -> int:
    """Which one of equal statements of its delivery it is, from 1."""
    if not _in_numbered_batch(event) or not before or before[-1].position[:2] != event.position[:2]:
        return 1
    last = before[-1]
    marks = restarts.get(event.position[:2], ())
    if bisect(marks, last.offset) != bisect(marks, event.offset):
        return 1
    return numbers[last.position] + _happened_again(last, event, in_turn)


def _happened_again(last: DdlEvent, event: DdlEvent, in_turn: Sequence[DdlEvent]) -> bool:
    names = set(event.names())
    return _may_follow_itself(event.changes) or any(
        last.position < other.position < event.position
        and other.identity != event.identity
        and names & set(other.names())
        for other in in_turn
    )


def _may_follow_itself(changes: Sequence[SchemaChange]) -> bool:
    """Whether the changes fit a second time, with nothing in between, and do something then."""
    pairs = [pair for change in changes for pair in renamed_names(change)]
    swaps = bool(pairs) and {old for old, _ in pairs} == {new for _, new in pairs}
    return swaps or any(map(_empties, changes))


def _empties(change: SchemaChange) -> bool:
    """Whether rows go, or come, with the change whenever it is done."""
    if isinstance(change, AlterTable):
        return any(isinstance(clause, (TruncatePartition, ExchangePartition)) for clause in change.clauses)
    return isinstance(change, TruncateTable)


_SENT_AGAIN_MS = 600_000
"""How long before its restart Canal has sent what it sends again: some seconds, as a rule (canal-facts 51)."""


def canal_restarts(log: DataFrame, history: DataFrame, events: Sequence[DdlEvent]) -> Restarts:
    """The restarts of Canal between these statements. `log` and `history` are `change_log` and `ddl_history`.

    The partition itself shows one where its numbers step back; where they go on to grow, the topic does by its clock.
    """
    if "message_id" not in history.columns:
        return {}  # a lake of 0.1.0
    found: dict[tuple[str, int], list[int]] = {}
    for topic in sorted({event.topic for event in events}):
        here = [event for event in events if event.topic == topic]
        times = _beginnings(log, history, here)
        for partition in sorted({event.partition for event in here}):
            ours = [event for event in here if event.partition == partition]
            later = [[event.offset for event in ours if (event.ts or 0) >= time] for time in times]
            found[topic, partition] = sorted({*_steps_back(log, history, ours), *map(min, filter(None, later))})
    return found


def _beginnings(log: DataFrame, history: DataFrame, events: Sequence[DdlEvent]) -> list[int]:
    """When Canal began again (ms) up to the last of these statements of one topic."""
    times = [event.ts for event in events if event.ts is not None]
    if not times:
        return []
    near = (F.col("topic") == events[0].topic) & F.col("ts").between(min(times) - _SENT_AGAIN_MS, max(times))
    found = new_beginnings(log.where(near), history.where(near)).first()
    return [] if found is None else list(found["beginnings"])


def _steps_back(log: DataFrame, history: DataFrame, events: Sequence[DdlEvent]) -> list[int]:
    """The offsets between these statements of one partition at which its batch numbers step back."""
    columns = ("topic", "partition", "offset", "message_id")
    offsets = [event.offset for event in events]
    here = (F.col("topic") == events[0].topic) & (F.col("partition") == events[0].partition)
    inside = here & F.col("offset").between(min(offsets), max(offsets))
    records = log.where(inside).select(*columns).unionByName(history.where(inside).select(*columns))
    before = F.lag("message_id").over(Over.partitionBy("topic", "partition").orderBy("offset"))
    marks = records.withColumn("before", before).where("message_id < before").select("offset").collect()
    return [row["offset"] for row in marks]
