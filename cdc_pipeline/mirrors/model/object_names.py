"""Finds the tables that statements mean, as upstream compares names.

TiDB never distinguishes case. MySQL does or does not (`lower_case_table_names`), which no message shows. So a name means the
table that is spelled the same, else the only one that differs in case alone. If there are several, each gets a gap.

With `lower_case_table_names=1` statements stay as typed, while rows and the session's database are in lower case. So if a
table was only ever defined as `Orders`, and rows of `orders` follow that no statement defines, both are one table, under
the name of its rows. A definition of `orders` shows that they are two (`lower_case_table_names=0`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from cdc_pipeline.dialects.traits import Trait, dialect_has_trait
from cdc_pipeline.mirrors.model.unqualified_names import qualified
from cdc_pipeline.mysql.model.change_names import folded, with_names
from cdc_pipeline.mysql.model.schema_changes import CreateTable, CreateTableLike, DropDatabase, DropTable, NotSupported

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.model.upstream_tables import RowTimes
    from cdc_pipeline.mysql.model.schema_changes import SchemaChange
    from cdc_pipeline.mysql.model.table import TableName


class TableNames:
    """A set of table names that finds them by any spelling."""

    def __init__(self, names: Iterable[TableName] = ()) -> None:
        self._spellings: dict[TableName, set[TableName]] = defaultdict(set)
        self._tables: dict[str, set[TableName]] = defaultdict(set)
        for name in names:
            self.add(name)

    def __contains__(self, name: TableName) -> bool:
        return name in self._tables.get(name.database, ())

    def __iter__(self) -> Iterator[TableName]:
        return chain.from_iterable(self._tables.values())

    def add(self, name: TableName) -> None:
        self._spellings[folded(name)].add(name)
        self._tables[name.database].add(name)

    def discard(self, name: TableName) -> None:
        self._spellings[folded(name)].discard(name)
        self._tables[name.database].discard(name)

    def spellings(self, name: TableName) -> list[TableName]:
        """The names that differ from this one in case alone, or not at all."""
        return sorted(self._spellings.get(folded(name), ()))

    def databases(self, name: str) -> list[str]:
        """The database of this name, else all that differ from it in case alone."""
        if self._tables.get(name):
            return [name]
        return sorted(other for other, tables in self._tables.items() if tables and other.lower() == name.lower())

    def of_database(self, name: str) -> list[TableName]:
        return sorted(self._tables.get(name, ()))


class ObjectNames:
    """Upstream's tables at one point of the stream.

    tables: those that exist, as far as is known.
    rows: returns the tables with rows in the cut. Called only if the known tables do not decide.
    """

    def __init__(
        self,
        tables: Iterable[TableName],
        rows: Callable[[], Mapping[TableName, RowTimes]] = dict,
    ) -> None:
        self._tables = TableNames(tables)
        self._rows_of_cut = rows
        self._removed: set[TableName] = set()
        self._folding: set[str] = set()
        """The topics whose statements name tables in lower case by names with capital letters, as far as that was seen."""
        self._later: dict[TableName, list[int]] = defaultdict(list)
        """Name → `commit_ts` of the later statements that create a table of exactly this name."""

    @cached_property
    def _rows(self) -> Mapping[TableName, RowTimes]:
        return self._rows_of_cut()

    @cached_property
    def _with_rows(self) -> TableNames:
        return TableNames(self._rows)

    def resolved(self, events: Iterable[DdlEvent]) -> list[DdlEvent]:
        """The events, in order, with the names of the tables that they mean. Adds missing databases."""
        typed, before = list(events), list(self._tables)
        found = self._resolve_all(typed)
        if self._folding:
            # a later statement may have shown that upstream does not distinguish case
            self._tables, self._removed = TableNames(before), set()
            found = self._resolve_all(typed)
        return found

    def _resolve_all(self, events: Iterable[DdlEvent]) -> list[DdlEvent]:
        self._later = defaultdict(list)
        for event in events:
            for name in _created_names(event):
                self._later[name].append(event.commit_ts)
        return [self._resolve(event) for event in events]

    def looked_up(self, event: DdlEvent) -> DdlEvent:
        """An event of an earlier cut with the present names of its tables, as far as they exist or have rows."""

        def known(name: TableName) -> TableName:
            found = self._find(name, event)
            return found[0] if len(found) == 1 else name

        changes: list[SchemaChange] = []
        for change in event.changes:
            if isinstance(change, DropDatabase):
                same = self._databases(change.database)
                changes.append(replace(change, database=same[0]) if len(same) == 1 else change)
            else:
                changes.append(with_names(change, known, known))
        return replace(event, changes=tuple(changes))

    # ---- one statement

    def _resolve(self, event: DdlEvent) -> DdlEvent:
        for name in _created_names(event):
            self._later[name].pop(0)
        changes: list[SchemaChange] = []
        for change in qualified(event.changes, event.database, self._existing):
            for meant in self._meant(change, event):
                self._follow(meant)
                changes.append(meant)
        return replace(event, changes=tuple(changes))

    def _existing(self) -> set[TableName]:
        return {*self._tables, *(self._rows.keys() - self._removed)}

    def _meant(self, change: SchemaChange, event: DdlEvent) -> list[SchemaChange]:
        """The change of the tables that it means. If several match a name, a `NotSupported` for each."""
        if isinstance(change, DropDatabase):
            return self._database_dropped(change)
        ties: set[TableName] = set()

        def existing(name: TableName) -> TableName:
            found = self._find(name, event)
            ties.update(found[1:] and found)
            if found == [folded(name)] and found != [name] and not getattr(change, "if_exists", False):
                self._folding.add(event.topic)
            return found[0] if found else name

        def created(name: TableName) -> TableName:
            may_exist = getattr(change, "if_not_exists", False) and (_is_tidb(event) or folded(name) != name)
            same = self._find(name, event) if may_exist else []
            return same[0] if len(same) == 1 else self._new_name(name, event)

        meant = with_names(change, existing, created)
        if ties:
            return [_tied(change, name) for name in sorted(ties)]
        if _is_tidb(event) and isinstance(meant, (CreateTable, CreateTableLike)) and not meant.if_not_exists:
            # upstream created the table, so the one of another case no longer existed
            former = [name for name in self._tables.spellings(meant.name) if name != meant.name]
            return [*(DropTable(name, if_exists=True) for name in former), meant]
        return [meant]

    def _find(self, name: TableName, event: DdlEvent) -> list[TableName]:
        """The tables that the name means: several if it is a tie, none if no such table is known."""
        if name in self._tables:
            return [name]
        found = self._tables.spellings(name)
        if _is_tidb(event) and found:
            return found
        if name in self._rows:
            return [name]
        return found or [other for other in self._with_rows.spellings(name) if other not in self._removed]

    def _new_name(self, name: TableName, event: DdlEvent) -> TableName:
        """The name of a table that the statement creates: as typed, or that of its rows."""
        databases, lower = self._tables.databases(name.database), folded(name)
        if not _is_tidb(event):
            if lower == name or name in self._rows:
                return name
            if self._has_rows_after(lower, event):
                self._folding.add(event.topic)
                return lower
            if event.topic in self._folding and lower not in self._tables:
                return lower
            databases = databases or self._with_rows.databases(name.database)
            databases = [database for database in databases if database == lower.database]
        if len(databases) != 1:
            return name
        in_known = replace(name, database=databases[0])
        # a table of this name in a database of another case: two databases
        return name if self._tables.spellings(in_known) else in_known

    def _has_rows_after(self, name: TableName, event: DdlEvent) -> bool:
        """Whether rows of a table that no statement defines follow the statement, and none that exists precedes it."""
        if name in self._tables:
            return False
        times, redefined = self._rows.get(name), min(self._later.get(name, ()), default=None)
        if times is None or (redefined is not None and times.first >= redefined):
            return False
        ended = name in self._removed and redefined is None and times.last >= event.commit_ts
        return ended or times.first >= event.commit_ts

    def _databases(self, name: str) -> list[str]:
        """The databases that the name means."""
        return self._tables.databases(name) or self._with_rows.databases(name)

    def _database_dropped(self, change: DropDatabase) -> list[SchemaChange]:
        same = self._databases(change.database)
        if len(same) < 2:
            return [replace(change, database=name) for name in same] or [change]
        return [_tied(change, name) for database in same for name in self._tables.of_database(database)]

    def _follow(self, change: SchemaChange) -> None:
        """Moves on to the point after the change."""
        names = change.names()
        removed = set(names.removed)
        if isinstance(change, DropDatabase):
            removed.update(self._tables.of_database(change.database))
        added = {*names.added, *names.recovered}
        if isinstance(change, NotSupported) and change.creates and change.name is not None:
            added.add(change.name)
        for name in removed:
            self._tables.discard(name)
        for name in added:
            self._tables.add(name)
        self._removed = (self._removed | removed) - added if removed or self._removed & added else self._removed


def moved_names(
    known: Collection[TableName],
    rows: Mapping[TableName, RowTimes],
    events: Iterable[DdlEvent],
    has_rows: Callable[[TableName], bool],
) -> dict[TableName, TableName]:
    """The tables of earlier cuts whose first rows come under another case, each with the name of its rows.

    known: the tables of earlier cuts. rows: the tables with rows in this cut. events: its statements, in order. has_rows:
    whether a table has rows under its own name.
    """
    defined: dict[TableName, int] = {}
    for event in events:
        for name in _created_names(event):
            defined.setdefault(name, event.commit_ts)
    tables = TableNames(known)
    found: dict[TableName, TableName] = {}
    for name in sorted(name for name, times in rows.items() if times.first < defined.get(name, times.first + 1)):
        if name in tables:
            continue
        same = tables.spellings(name) if folded(name) == name else []
        if len(same) == 1 and not has_rows(same[0]):
            found[same[0]] = name
    for old, new in list(found.items()):
        # the database is spelled as its rows spell it, for its other tables too
        for other in tables.of_database(old.database) if old.database != new.database else ():
            target = replace(other, database=new.database)
            if other not in found and tables.spellings(target) == [other] and not has_rows(other):
                found[other] = target
    return found


def _created_names(event: DdlEvent) -> list[TableName]:
    return [name for change in event.changes for name in change.names().added]


def _tied(change: SchemaChange, name: TableName) -> NotSupported:
    return NotSupported(f"{change.description()}: several tables differ from this name in case alone", name)


def _is_tidb(event: DdlEvent) -> bool:
    return dialect_has_trait(event.dialect, Trait.FROM_TIDB)
