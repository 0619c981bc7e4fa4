"""The segment of a row by its columns and types, where its position does not decide (`segments`).

Derives what a cut's statements reveal about a table before and after each of them. Pure values: only the names and types
of columns, no row data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc_pipeline.mysql.ddl.column_types import type_or_text
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
"""Types whose parameters do not change values: `int(11)` is `int`."""


@dataclass
class TableFacts:
    """What is known about a table between two statements. Column names are in lower case."""

    exists: bool | None = None
    """None: unknown."""
    columns: frozenset[str] | None = None
    """All its columns; None if not all are known."""
    has: set[str] = field(default_factory=set)
    """Columns that it certainly has."""
    lacks: set[str] = field(default_factory=set)
    """Columns that it certainly lacks."""
    types: dict[str, MySqlType] = field(default_factory=dict)
    """The known types."""

    def copy(self) -> TableFacts:
        return TableFacts(self.exists, self.columns, set(self.has), set(self.lacks), dict(self.types))

    def allows(self, columns: frozenset[str], types: Mapping[str, MySqlType], *, whole: bool) -> bool:
        """Whether the table can hold a row with these columns and types. `whole`: the row has all columns of the table."""
        if self.exists is False or self.lacks & columns:
            return False
        if self.columns is not None and columns - self.columns:
            return False
        if whole and self.has - columns:
            return False
        return all(_same_values(types[name], kind) for name, kind in self.types.items() if name in types)


class SegmentFinder:
    """Locates rows of one table among the statements about it (`events`, in order). `known`: it existed before them."""

    def __init__(self, name: TableName, events: Sequence[DdlEvent], *, known: bool) -> None:
        self._name = name
        self._events = events
        self._facts = _facts(name, events, known=known)

    def locate(self, low: int, high: int, columns: Iterable[str], types: Mapping[str, str]) -> tuple[int, int | None]:
        """Returns the segment of a row that lies between the segments `low` and `high`, and the index of the first statement
        whose order against the row is unknown (None: the segment is certain).

        `types`: column → type, as the row's message names it.
        """
        names = frozenset(name.lower() for name in columns)
        parsed = {name.lower(): type_or_text(text) for name, text in types.items() if text}
        between = range(low, high + 1)
        fitting = [at for at in between if self._facts[at].allows(names, parsed, whole=True)]
        # a partial image lacks columns that the table has (binlog_row_image MINIMAL, NOBLOB)
        fitting = fitting or [at for at in between if self._facts[at].allows(names, parsed, whole=False)]
        if not fitting:
            return low, low
        first, last = fitting[0], fitting[-1]
        doubtful = next((at for at in range(first, last) if self._matters(at, parsed)), None)
        return (last, None) if doubtful is None else (first, doubtful)

    def _matters(self, at: int, types: Mapping[str, MySqlType]) -> bool:
        """Whether it matters on which side of a statement a row lies, if it fits both sides."""
        missing = self._facts[at].exists is False
        return any(_change_matters(change, self._name, types, missing) for change in self._events[at].changes)


def _facts(name: TableName, events: Sequence[DdlEvent], *, known: bool) -> list[TableFacts]:
    """The facts before the first event, and after each event."""
    found = [TableFacts(exists=True if known else None)]
    for event in events:
        facts = found[-1].copy()
        for change in event.changes:
            facts = _facts_after(facts, change, name, found)
        found.append(facts)
    return found


def _facts_after(facts: TableFacts, change: SchemaChange, name: TableName, earlier: list[TableFacts]) -> TableFacts:
    """The facts after one change. Adds to `earlier` what the change reveals about the table before it."""
    if name in change.names().added:
        if isinstance(change, CreateTable) and change.if_not_exists and facts.exists:
            return facts
        _learn_existence(earlier, exists=False)
        if not isinstance(change, CreateTable):
            return TableFacts(True)
        types = {column.name.lower(): column.type for column in change.schema.columns}
        return TableFacts(True, frozenset(types), set(types), set(), types)
    if isinstance(change, RecoverTable) and (change.new_name or change.name) == name:
        return TableFacts(True)
    if isinstance(change, (DropTable, RenameTable)) and change.name == name:
        if not (isinstance(change, DropTable) and change.if_exists):
            _learn_existence(earlier, exists=True)
        return TableFacts(False)
    if isinstance(change, AlterTable) and change.name == name:
        _learn_existence(earlier, exists=True)
        return _facts_after_alter(facts, change, earlier)
    return facts


def _learn_existence(earlier: list[TableFacts], *, exists: bool) -> None:
    """Sets whether the table existed, back to the start, if no statement before revealed it."""
    if all(facts.exists is None for facts in earlier):
        for facts in earlier:
            facts.exists = exists


def _facts_after_alter(facts: TableFacts, change: AlterTable, earlier: list[TableFacts]) -> TableFacts:
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
        _learn_column(earlier, name, exists=name in dropped)
    removed = dropped - added.keys()
    facts.has = (facts.has - removed) | added.keys()
    facts.lacks = (facts.lacks | removed) - added.keys()
    facts.types = {name: kind for name, kind in facts.types.items() if name not in removed | added.keys()}
    facts.types.update({name: kind for name, kind in added.items() if kind is not None})
    if facts.columns is not None:
        facts.columns = (facts.columns - removed) | added.keys()
    return facts


def _learn_column(earlier: list[TableFacts], name: str, *, exists: bool) -> None:
    """Sets whether the table had a column, back to where that is known already or the table was created."""
    for facts in reversed(earlier):
        if facts.exists is False or facts.columns is not None or name in facts.has | facts.lacks:
            return
        (facts.has if exists else facts.lacks).add(name)


def _same_values(one: MySqlType, other: MySqlType) -> bool:
    """Whether both types have the same values. Messages may omit parameters and labels of a type: those match any."""
    if one.base != other.base or one.unsigned != other.unsigned:
        return False
    if one.members and other.members and one.members != other.members:
        return False
    return one.base in _WITHOUT_WIDTH or not one.params or not other.params or one.params == other.params


def _change_matters(change: SchemaChange, name: TableName, types: Mapping[str, MySqlType], missing: bool) -> bool:
    """As `SegmentFinder._matters`. `missing`: no table exists, so CREATE TABLE IF NOT EXISTS creates one."""
    if isinstance(change, (CreateTable, CreateTableLike, CreateTableAsSelect)) and change.if_not_exists and not missing:
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
    """As `SegmentFinder._matters`, for a clause of ALTER TABLE.

    ADD and DROP of a column do not matter: a row that fits both sides is the same on both.
    """
    if isinstance(clause, ChangeColumn):
        old, new = clause.name.lower(), clause.column.name.lower()
        kind = types.get(new)
        # an ENUM or SET number has no meaning without the labels
        return old != new or (clause.column.type.base in ("enum", "set") and (kind is None or not kind.members))
    return isinstance(clause, (RenameTo, RenameColumn, PartitionRowsClause))
