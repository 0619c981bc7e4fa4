"""Tables that statements tie together (RENAME, LIKE, EXCHANGE …): one of them cannot be rebuilt without the others."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from cdc_pipeline.mysql.ddl.queried_columns import queried_tables
from cdc_pipeline.mysql.model.change_names import folded, table_names
from cdc_pipeline.mysql.model.schema_changes import CreateTableAsSelect, DropDatabase, RecoverDatabase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mysql.model.table import TableName


def tied_tables(
    events: Iterable[DdlEvent],
    known: Iterable[TableName],
    chosen: Iterable[TableName],
    mirror_names: Mapping[TableName, str] | None = None,
) -> frozenset[TableName]:
    """The chosen tables and all that statements or a merged mirror tie to them, directly or through others.

    `known`: all names that tables ever had. A statement on a database ties all of its tables. Names that differ in case
    alone may be one table. `mirror_names`: the mirror of each included table.
    """
    known = frozenset(known)
    merged: dict[str | TableName, set[TableName]] = defaultdict(set)
    for name, mirror in (mirror_names or {}).items():
        merged[mirror].add(name)
    for name in known:
        merged[folded(name)].add(name)
    groups = [*(event_tables(event, known) for event in events), *merged.values()]
    tied, size = set(chosen), -1
    while len(tied) > size:
        size = len(tied)
        for group in groups:
            if not tied.isdisjoint(group):
                tied |= group
    return frozenset(tied)


def event_tables(event: DdlEvent, known: frozenset[TableName]) -> set[TableName]:
    """All tables that the event names, those it only reads included. A name without a database means every known table of
    that name."""
    named: set[TableName] = set()
    for change in event.changes:
        names = table_names(change)
        if isinstance(change, CreateTableAsSelect):
            names += queried_tables(change.query, change.database)
        for name in names:
            named |= (
                {name} if name.database else {other for other in known if other.table.lower() == name.table.lower()}
            )
    databases = {
        change.database.lower() for change in event.changes if isinstance(change, (DropDatabase, RecoverDatabase))
    }
    return named | {name for name in known if name.database.lower() in databases}
