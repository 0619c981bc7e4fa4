"""A binlog that is played again (`mysqlbinlog | mysql`): after an accident the tables are put back to an earlier moment, and
the statements and rows since then are executed once more. Their messages are equal to the first ones, with the old `es`.

Not generated, because no reader could know the truth:

- Canal without batch numbers: a stretch with an older `es` and a new clock is what such a service resends.
- A restart of Canal between the first execution and the second, after which nothing newer precedes the second in its
  partition: it looks like the resent first one (`shows_replays`).
- DROP DATABASE among what is played again, because the model would have to drop what others have made since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline_tests.histories.choices import Choices
from cdc_pipeline_tests.histories.clock import Clock
from cdc_pipeline_tests.histories.ddl import CreateDatabase, CreateTable, DropDatabase, DropTables, Rows, TruncateTable
from cdc_pipeline_tests.histories.shapes import Name, Table
from cdc_pipeline_tests.histories.upstream import Ddl, Event, Upstream

if TYPE_CHECKING:
    from cdc_pipeline_tests.histories.message import Message
    from cdc_pipeline_tests.histories.sender import Sent

_WAITS = (1_000, 60_000, 3_600_000)
"""How long a recovery takes, in ms. The last one is more than a restarted Canal resends."""


def play_again(upstream: Upstream, clock: Clock, choices: Choices, *, resent: bool) -> None:
    """Plays a random stretch of the events again. `resent`: Canal restarts, perhaps from before the stretch."""
    for _ in range(5):
        if _play_stretch(upstream, clock, choices, _WAITS[:-1] if resent else _WAITS):
            break


def _play_stretch(upstream: Upstream, clock: Clock, choices: Choices, waits: Sequence[int]) -> bool:
    """Plays a stretch again. False if its tables are as they were before it."""
    first = 1 + max((at for at, event in enumerate(upstream.events) if _is_of_database(event)), default=-1)
    begin = choices.integer(first, len(upstream.events))
    events = upstream.events[begin : choices.integer(begin, len(upstream.events))]
    names = {name for event in events for name in _names(event)}
    earlier = Upstream()
    for event in upstream.events[:begin]:
        earlier.run(event)
    clock.wait(1_000)
    if not _reset(upstream, clock, choices, names, earlier.rows):
        return False
    clock.wait(choices.pick(waits))
    for event in events:
        upstream.play_again(event, clock.soon())
    clock.wait(1_000)
    return True


def _reset(upstream: Upstream, clock: Clock, choices: Choices, names: set[Name], wanted: Rows) -> bool:
    """Brings the tables of these names to the wanted state: an accident, and what loads a backup. False if nothing is."""
    count = len(upstream.events)
    for table in [table for table in upstream.tables if table.full_name in names]:
        if table not in wanted:
            upstream.execute(DropTables((table,)), clock.next_of_ddl())
        elif upstream.rows[table] and choices.chance(0.5):
            upstream.execute(TruncateTable(table), clock.next_of_ddl())
        elif upstream.rows[table]:
            accident = upstream.begin(clock.next())
            accident.delete(table, list(upstream.rows[table]))
            accident.commit()
    if len(upstream.events) == count:
        return False
    for table, rows in wanted.items():
        if table.full_name in names and table not in upstream.rows:
            upstream.execute(CreateTable(table), clock.next_of_ddl())
        if table.full_name in names and rows:
            backup = upstream.begin(clock.next())
            backup.insert(table, rows.values())
            backup.commit()
            # what is played again names the rows by their former ids
            upstream.rows[table] = dict(rows)
    return True


def _is_of_database(event: Event) -> bool:
    return isinstance(event, Ddl) and isinstance(event.statement, (CreateDatabase, DropDatabase))


def _names(event: Event) -> set[Name]:
    tables: Sequence[Table] = (
        event.statement.tables if isinstance(event, Ddl) else [change.table for change in event.statements]
    )
    return {table.full_name for table in tables}


def with_replays(messages: list[Message], upstream: Upstream) -> list[Message]:
    """The messages with those of the events that were played again, in order."""
    again = [
        replace(message, commit_ts=commit_ts, group=-message.group, first=message)
        for commit_ts, event in upstream.replays.items()
        for message in messages
        if message.commit_ts == event.commit_ts
    ]
    return sorted([*messages, *again], key=lambda message: message.commit_ts)


def shows_replays(timeline: Sequence[Sent]) -> bool:
    """Whether the messages show that what was played again is no resent stretch.

    Canal sent it in the same delivery as the first one, or something newer precedes it in its delivery and partition.
    """
    delivery, deliveries, newest = 0, dict[int, int](), dict[int, int]()
    for sent in timeline:
        message = sent.message
        if sent.restarted:
            delivery += 1
            newest.clear()
        is_new = deliveries.setdefault(id(message), delivery) == delivery
        is_apart = message.first is not None and deliveries.get(id(message.first), delivery) < delivery
        if is_new and is_apart and newest.get(message.partition, 0) <= message.order:
            return False
        newest[message.partition] = max(message.order, newest.get(message.partition, 0))
    return True
