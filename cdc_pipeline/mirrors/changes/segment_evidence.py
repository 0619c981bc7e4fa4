"""What the statements of a cut say of a table between them, and where a row that carries certain columns can lie.

Used where nothing in the stream tells whether a row came before or after a statement (`segments`). Pure values: only the
names and types of columns are looked at, no row data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc_pipeline.mysql.ddl.column_types import type_in_words
from cdc_pipeline.mysql.expressions.conversions import INTEGERS
from cdc_pipeline.mysql.model.schema_changes import (
    AddColumn,
    AlterTable,
    ChangeColumn,
    CreateTable,
    CreateTableAsSelect,
    CreateTableLike,
    DropColumn,
    DropTable,
    ExchangePartition,
    PartitionRowsClause,
    RecoverTable,
    RenameColumn,
    RenameTable,
    RenameTo,
    TruncateTable,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mysql.model.schema_changes import Clause, SchemaChange
    from cdc_pipeline.mysql.model.table import MySqlType, TableName

_WITHOUT_WIDTH = INTEGERS | {"year", "float", "double"}
"""Types whose numbers in brackets say nothing of values: `int(11)` is `int`."""


@dataclass
class TableFacts:
    """What is known of a table between two statements, all names in lower case.

    `has` are columns that it has for sure, `lacks` those that it has not; `columns` are all of them where they are known;
    `types` are the types that are known. `exists` is None where nothing tells whether a table of the name is there.
    """

    exists: bool | None = None
    columns: frozenset[str] | None = None
    has: set[str] = field(default_factory=set)
    lacks: set[str] = field(default_factory=set)
    types: dict[str, MySqlType] = field(default_factory=dict)

    def copy(self) -> TableFacts:
        return TableFacts(self.exists, self.columns, set(self.has), set(self.lacks), dict(self.types))

    def allows(self, columns: frozenset[str], types: Mapping[str, MySqlType], *, whole: bool) -> bool:
        """Whether a row with these columns and types can be of the table. `whole`: it has all of its columns."""
        if self.exists is False or self.lacks & columns:
            return False
        if self.columns is not None and columns - self.columns:
            return False
        if whole and self.has - columns:
            return False
        return all(_same_values(types[name], kind) for name, kind in self.types.items() if name in types)


class SegmentFinder:
    """Finds the segment of rows of one table. `events` are the statements that touch it, in order; `known`: the table was
    there before them."""

    def __init__(self, name: TableName, events: Sequence[DdlEvent], *, known: bool) -> None:
        self._name = name
        self._events = events
        self._facts = _facts(name, events, known=known)

    def found(self, low: int, high: int, columns: Iterable[str], words: Mapping[str, str]) -> tuple[int, int | None]:
        """The segment of a row that lies in one from `low` to `high`, and the index of the statement of which nothing tells
        on which side the row lies; None where there is no doubt. `words` are the types that its message names, by column."""
        names = frozenset(name.lower() for name in columns)
        types = {name.lower(): type_in_words(text) for name, text in words.items() if text}
        between = range(low, high + 1)
        fitting = [at for at in between if self._facts[at].allows(names, types, whole=True)]
        # a partial image lacks columns that the table has (binlog_row_image MINIMAL, NOBLOB)
        fitting = fitting or [at for at in between if self._facts[at].allows(names, types, whole=False)]
        if not fitting:
            return low, low
        first, last = fitting[0], fitting[-1]
        doubtful = next((at for at in range(first, last) if self._matters(at, types)), None)
        return (last, None) if doubtful is None else (first, doubtful)

    def _matters(self, at: int, types: Mapping[str, MySqlType]) -> bool:
        """Whether the table has other rows by the side of the statement on which a row lies that fits both sides."""
        gone = self._facts[at].exists is False
        return any(_change_matters(change, self._name, types, gone) for change in self._events[at].changes)


def _facts(name: TableName, events: Sequence[DdlEvent], *, known: bool) -> list[TableFacts]:
    """What is known before the first of the events, and after each of them."""
    found = [TableFacts(exists=True if known else None)]
    for event in events:
        facts = found[-1].copy()
        for change in event.changes:
            facts = _after(facts, change, name, found)
        found.append(facts)
    return found


def _after(facts: TableFacts, change: SchemaChange, name: TableName, earlier: list[TableFacts]) -> TableFacts:
    """The facts after one change. What it says of the table before it is put into `earlier`."""
    if name in change.names().added:
        if isinstance(change, CreateTable) and change.if_not_exists and facts.exists:
            return facts
        _learn_whether(earlier, there=False)
        if not isinstance(change, CreateTable):
            return TableFacts(True)
        types = {column.name.lower(): column.type for column in change.schema.columns}
        return TableFacts(True, frozenset(types), set(types), set(), types)
    if isinstance(change, RecoverTable) and (change.new_name or change.name) == name:
        return TableFacts(True)
    if isinstance(change, (DropTable, RenameTable)) and change.name == name:
        if not (isinstance(change, DropTable) and change.if_exists):
            _learn_whether(earlier, there=True)
        return TableFacts(False)
    if isinstance(change, AlterTable) and change.name == name:
        _learn_whether(earlier, there=True)
        return _altered(facts, change, earlier)
    return facts


def _learn_whether(earlier: list[TableFacts], *, there: bool) -> None:
    """Whether there was a table of the name before the first statement that tells."""
    if all(facts.exists is None for facts in earlier):
        for facts in earlier:
            facts.exists = there


def _altered(facts: TableFacts, change: AlterTable, earlier: list[TableFacts]) -> TableFacts:
    added: dict[str, MySqlType | None] = {}
    dropped: set[str] = set()
    unsure: set[str] = set()
    for clause in change.clauses:
        if isinstance(clause, RenameTo):
            return TableFacts(False)
        if isinstance(clause, AddColumn):
            added[clause.column.name.lower()] = clause.column.type
            unsure |= {clause.column.name.lower()} if clause.if_not_exists else set()
        elif isinstance(clause, DropColumn):
            dropped.add(clause.name.lower())
            unsure |= {clause.name.lower()} if clause.if_exists else set()
        elif isinstance(clause, ChangeColumn):
            added[clause.column.name.lower()] = clause.column.type
            dropped.add(clause.name.lower())
        elif isinstance(clause, RenameColumn):
            added[clause.new_name.lower()] = facts.types.get(clause.name.lower())
            dropped.add(clause.name.lower())
    for name in (added.keys() ^ dropped) - unsure:
        _learn_column(earlier, name, there=name in dropped)
    gone = dropped - added.keys()
    facts.has = (facts.has - gone) | added.keys()
    facts.lacks = (facts.lacks | gone) - added.keys()
    facts.types = {name: kind for name, kind in facts.types.items() if name not in gone | added.keys()}
    facts.types.update({name: kind for name, kind in added.items() if kind is not None})
    if facts.columns is not None:
        facts.columns = (facts.columns - gone) | added.keys()
    return facts


def _learn_column(earlier: list[TableFacts], name: str, *, there: bool) -> None:
    """Whether the table had a column before the first statement that speaks of it, back to where the table began."""
    for facts in reversed(earlier):
        if facts.exists is False or facts.columns is not None or name in facts.has | facts.lacks:
            return
        (facts.has if there else facts.lacks).add(name)


def _same_values(one: MySqlType, other: MySqlType) -> bool:
    """Whether values of both types are the same as far as messages name them: they may leave out numbers and labels."""
    if one.base != other.base or one.unsigned != other.unsigned:
        return False
    if one.members and other.members and one.members != other.members:
        return False
    return one.base in _WITHOUT_WIDTH or not one.params or not other.params or one.params == other.params


def _change_matters(change: SchemaChange, name: TableName, types: Mapping[str, MySqlType], gone: bool) -> bool:
    """`gone`: there is no table of the name before the change. CREATE TABLE IF NOT EXISTS does nothing where one is."""
    if isinstance(change, (CreateTable, CreateTableLike, CreateTableAsSelect)) and change.if_not_exists and not gone:
        return False
    if isinstance(change, (RenameTable, RecoverTable)):
        return name in (change.name, change.new_name)
    if isinstance(change, (CreateTable, CreateTableLike, CreateTableAsSelect, TruncateTable, DropTable)):
        return change.name == name
    if not isinstance(change, AlterTable):
        return False
    if change.name != name:
        return any(
            (isinstance(clause, RenameTo) and clause.name == name)
            or (isinstance(clause, ExchangePartition) and clause.table == name)
            for clause in change.clauses
        )
    return any(_clause_matters(clause, types) for clause in change.clauses)


def _clause_matters(clause: Clause, types: Mapping[str, MySqlType]) -> bool:
    """Of a clause of ALTER TABLE. A row that has a column, or has it not, on both sides of ADD and DROP lies before or after
    both of them."""
    if isinstance(clause, ChangeColumn):
        old, new = clause.name.lower(), clause.column.name.lower()
        kind = types.get(new)
        # the number of a label says nothing without the labels
        return old != new or (clause.column.type.base in ("enum", "set") and (kind is None or not kind.members))
    return isinstance(clause, (RenameTo, RenameColumn, PartitionRowsClause))
