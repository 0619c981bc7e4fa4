"""Copies of one statement are distinguished from equal statements. No Spark."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import replace

import pytest

from cdc_pipeline.mirrors.changes.statement_copies import statement_identities
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent, in_upstream_order
from cdc_pipeline.mysql.ddl.statements import DDL_EVENT, event_changes
from cdc_pipeline.positions import Position

_CREATE, _DROP, _EMPTY = "CREATE TABLE t (a INT)", "DROP TABLE t", "TRUNCATE TABLE t"
_SWAP = "RENAME TABLE a TO c, b TO a, c TO b"
_REPLACE = "CREATE OR REPLACE TABLE t (a INT)"
_EXCHANGE = "ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE u"


def _event(
    sql: str, offset: int, *, dialect: str = "canal", partition: int = 0, ts: int | None = None, batch: int | None = 1
) -> DdlEvent:
    return DdlEvent(
        topic="shop",
        partition=partition,
        offset=offset,
        database="db",
        table="t",
        commit_ts=1 << 18,
        exact_ts=dialect != "canal",
        es=1,
        ts=offset if ts is None else ts,
        sql=sql,
        changes=event_changes(DDL_EVENT, "db", "t", sql),
        dialect=dialect,
        message_id=batch,
        at=(offset if ts is None else ts) << 18 | (batch or 0),
    )


def _copies(statements: Sequence[str], *, restarts: Sequence[int] = (), dialect: str = "canal") -> list[int]:
    """For each statement the index of the first one with the same identity."""
    events = [_event(sql, offset, dialect=dialect) for offset, sql in enumerate(statements)]
    identities = statement_identities(
        events, lambda found: {event.position: (bisect(restarts, event.offset),) for event in found}
    )
    ordered = [identities[event.position] for event in events]
    return [ordered.index(identity) for identity in ordered]


@pytest.mark.parametrize(
    ("statements", "restarts", "copies"),
    [
        ([_CREATE, _DROP, _CREATE, _DROP], (), [0, 1, 2, 3]),
        ([_CREATE, _DROP, _CREATE, _DROP] * 2, (4,), [0, 1, 2, 3, 0, 1, 2, 3]),
        # resent from the middle, then continued
        ([_CREATE, _DROP, _CREATE, _DROP, _CREATE], (3,), [0, 1, 2, 1, 0]),
        ([_DROP, _CREATE, _DROP, _CREATE, _DROP], (2,), [0, 1, 0, 1, 4]),
        ([_EMPTY, _EMPTY], (), [0, 1]),
        ([_EMPTY, _EMPTY], (1,), [0, 0]),
        # neither can happen twice in a row: a batch was resent
        ([_DROP, _DROP], (), [0, 0]),
        (["ALTER TABLE t ADD COLUMN b INT"] * 2, (), [0, 0]),
        (["RENAME TABLE t TO u"] * 2, (), [0, 0]),
        (["ALTER TABLE t ADD COLUMN b INT", "ALTER TABLE t DROP COLUMN b"] * 2, (), [0, 1, 2, 3]),
        # a table that nothing creates again cannot be renamed again (pt-online-schema-change, resent)
        (["RENAME TABLE t TO o, n TO t", "DROP TABLE o"] * 2, (), [0, 1, 0, 1]),
        (["RENAME TABLE t TO u", "RENAME TABLE u TO v"] * 2, (), [0, 1, 0, 1]),
        (["RENAME TABLE t TO u", _CREATE] * 2, (), [0, 1, 0, 1]),
        (["DROP TABLE u", "RENAME TABLE t TO u", _CREATE] * 2, (), [0, 1, 2, 3, 4, 5]),
        (["DROP DATABASE db", _CREATE, "RENAME TABLE t TO u"] * 2, (), [0, 1, 2, 3, 4, 5]),
        # these undo themselves when they happen twice
        ([_SWAP, _SWAP], (), [0, 1]),
        ([_EXCHANGE, _EXCHANGE], (), [0, 1]),
        ([_REPLACE, _REPLACE], (), [0, 1]),
        ([_REPLACE, _REPLACE], (1,), [0, 0]),
        (["DROP DATABASE IF EXISTS db", "CREATE DATABASE db", _CREATE] * 2, (), [0, 1, 2, 3, 1, 5]),
        (["DROP DATABASE IF EXISTS DB", _CREATE] * 2, (2,), [0, 1, 0, 1]),
        (["DROP DATABASE other", _CREATE, "DROP DATABASE other"], (), [0, 1, 0]),
        # a statement about another table has no influence
        ([_DROP, "DROP TABLE other", _DROP], (), [0, 1, 0]),
    ],
)
def test_copies_of_canal(statements: Sequence[str], restarts: Sequence[int], copies: Sequence[int]) -> None:
    assert _copies(statements, restarts=restarts) == copies


@pytest.mark.parametrize(
    ("statements", "copies"),
    [
        # each with its delivery: a stretch that is resent with its former clock, then the first delivery continues
        ([(_CREATE, 0), (_CREATE, 1)], [0, 0]),
        ([(_CREATE, 0), (_DROP, 0), (_CREATE, 0), (_DROP, 1), (_CREATE, 0)], [0, 1, 2, 1, 2]),
        ([(_CREATE, 0), (_DROP, 0), (_CREATE, 0), (_DROP, 0), (_DROP, 1), (_CREATE, 0)], [0, 1, 2, 3, 1, 5]),
        ([(_CREATE, 0), (_DROP, 0), (_DROP, 1), (_CREATE, 0)], [0, 1, 1, 3]),
        ([(_EMPTY, 0), (_EMPTY, 0), (_EMPTY, 1), (_EMPTY, 0)], [0, 1, 0, 3]),
    ],
)
def test_copies_in_resent_stretches(statements: Sequence[tuple[str, int]], copies: Sequence[int]) -> None:
    events = [_event(sql, offset) for offset, (sql, _) in enumerate(statements)]
    identities = statement_identities(
        events, lambda found: {event.position: (statements[event.offset][1],) for event in found}
    )
    ordered = [identities[event.position] for event in events]
    assert [ordered.index(identity) for identity in ordered] == copies


def test_the_first_sending_precedes_its_copy_in_upstream_order() -> None:
    """Canal resends both with their former clock and in one batch: the copy of the second has a lower number."""
    sent = [(_CREATE, 1, 7), (_DROP, 2, 8), (_CREATE, 1, 1), (_DROP, 2, 1), (_EMPTY, 9, 2)]
    events = [_event(sql, offset, ts=ts, batch=batch) for offset, (sql, ts, batch) in enumerate(sent)]
    assert [event.offset for event in in_upstream_order(reversed(events))] == [0, 1, 2, 3, 4]


def test_topics_of_one_batch_are_ordered_by_the_time_of_the_statements() -> None:
    """Canal's threads build the messages of its topics, so that `ts` may be in another order."""

    def ordered(*sent: tuple[str, int, int, int]) -> list[str]:
        events = [
            replace(_event(_DROP, offset, ts=ts, batch=batch), topic=topic, es=es)
            for offset, (topic, ts, batch, es) in enumerate(sent)
        ]
        return [f"{event.topic} {event.offset}" for event in in_upstream_order(reversed(events))]

    assert ordered(("t", 501, 7, 2000), ("db", 503, 7, 1000)) == ["db 1", "t 0"]
    # other batches, or the same number after a restart
    assert ordered(("t", 501, 6, 2000), ("db", 503, 7, 1000)) == ["t 0", "db 1"]
    assert ordered(("t", 501, 7, 2000), ("db", 99503, 7, 1000)) == ["t 0", "db 1"]
    # in each topic the offsets decide
    assert ordered(("t", 501, 7, 3000), ("t", 502, 7, 2000), ("db", 503, 7, 2500)) == ["db 2", "t 0", "t 1"]
    assert ordered(("t", 501, 7, 3000), ("db", 503, 7, 2500), ("t", 504, 8, 1000)) == ["db 1", "t 0", "t 2"]


def test_equal_statements_at_one_tso_are_copies() -> None:
    assert _copies([_CREATE, _DROP, _CREATE, _DROP], dialect="ticdc") == [0, 1, 0, 1]


def test_deliveries_are_read_only_for_equal_statements() -> None:
    asked: list[int] = []

    def deliveries_of(events: Sequence[DdlEvent]) -> dict[Position, tuple[int, ...]]:
        asked.extend(event.offset for event in events)
        return {}

    statement_identities([_event(_CREATE, 0), _event(_DROP, 1)], deliveries_of)
    assert asked == []
    statement_identities([_event(_CREATE, 0), _event(_DROP, 1), _event(_DROP, 4)], deliveries_of)
    assert asked == [1, 4]


def test_an_event_given_twice_counts_once() -> None:
    event = _event(_EMPTY, 3)
    assert statement_identities([event, event], lambda found: {}) == {event.position: (*event.identity, 1)}
