"""Tables that belong together, because statements name them together: one alone cannot be made again."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from cdc_pipeline.mysql.ddl.queried_columns import queried_tables
from cdc_pipeline.mysql.model.schema_changes import CreateTableAsSelect, DropDatabase, RecoverDatabase
from cdc_pipeline.mysql.model.table import TableName

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent


def tied_tables(
    events: Iterable[DdlEvent], known: Iterable[TableName], chosen: Iterable[TableName]
) -> frozenset[TableName]:
    """The chosen tables and all that statements tie to them, one after another: RENAME, LIKE, EXCHANGE, a DROP of several.
    `known` are all names that there ever were; a statement on a database ties all of its tables."""
    there = frozenset(known)
    neighbours: dict[TableName, set[TableName]] = defaultdict(set)
    for event in events:
        names = event_tables(event, there)
        for name in names:
            neighbours[name] |= names
    found: set[TableName] = set()
    waiting = list(chosen)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += neighbours[name] - found
    return frozenset(found)


def tied_and_merged(
    events: Iterable[DdlEvent],
    known: Iterable[TableName],
    chosen: Iterable[TableName],
    mirrored: Mapping[TableName, str],
) -> frozenset[TableName]:
    """As `tied_tables`, with those that are merged with any of them: `mirrored` are the mirrors of tables."""
    events, known = tuple(events), frozenset(known)
    found = tied_tables(events, known, chosen)
    while True:
        mirrors = {mirrored[name] for name in found if name in mirrored}
        more = {name for name, mirror in mirrored.items() if mirror in mirrors}
        if more <= found:
            return found
        found = tied_tables(events, known, {*found, *more})


def event_tables(event: DdlEvent, known: frozenset[TableName]) -> set[TableName]:
    """All tables that the event names, also those it only looks at. Where no database is named, each that may be meant."""
    named: set[TableName] = set()
    for name in _names(event.changes):
        named |= {name} if name.database else {other for other in known if other.table == name.table}
    databases = {change.database for change in event.changes if isinstance(change, (DropDatabase, RecoverDatabase))}
    return named | {name for name in known if name.database in databases}


def _names(value: Any) -> Iterator[TableName]:
    if isinstance(value, TableName):
        yield value
    elif isinstance(value, (tuple, list, frozenset)):
        for item in value:
            yield from _names(item)
    elif is_dataclass(value):
        if isinstance(value, CreateTableAsSelect):
            yield from queried_tables(value.query, value.database)
        for item in fields(value):
            yield from _names(getattr(value, item.name))
