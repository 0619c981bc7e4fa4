"""Tables that statements tie together (RENAME, LIKE, EXCHANGE …): one of them cannot be rebuilt without the others."""

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
    """The chosen tables and all that statements tie to them, directly or through others.

    `known`: all names that tables ever had. A statement on a database ties all of its tables.
    """
    known = frozenset(known)
    neighbours: dict[TableName, set[TableName]] = defaultdict(set)
    for event in events:
        names = event_tables(event, known)
        for name in names:
            neighbours[name] |= names
    tied: set[TableName] = set()
    to_visit = list(chosen)
    while to_visit:
        name = to_visit.pop()
        if name not in tied:
            tied.add(name)
            to_visit += neighbours[name] - tied
    return frozenset(tied)


def tied_and_merged(
    events: Iterable[DdlEvent],
    known: Iterable[TableName],
    chosen: Iterable[TableName],
    mirror_names: Mapping[TableName, str],
) -> frozenset[TableName]:
    """`tied_tables`, with the tables that share a merged mirror with any of them."""
    events, known = tuple(events), frozenset(known)
    tied = tied_tables(events, known, chosen)
    while True:
        mirrors = {mirror_names[name] for name in tied if name in mirror_names}
        merged = {name for name, mirror in mirror_names.items() if mirror in mirrors}
        if merged <= tied:
            return tied
        tied = tied_tables(events, known, {*tied, *merged})


def event_tables(event: DdlEvent, known: frozenset[TableName]) -> set[TableName]:
    """All tables that the event names, those it only reads included. A name without a database means every known table of
    that name."""
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
