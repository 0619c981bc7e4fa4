"""The segment of a row by its columns, where its position does not decide (`segments`).

Pure values: only names of columns, no row data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.mysql.model.schema_changes import (
    AddColumn,
    AlterTable,
    ChangeColumn,
    CreateTable,
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
    from collections.abc import Iterable, Sequence

    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mysql.model.schema_changes import Clause, SchemaChange
    from cdc_pipeline.mysql.model.table import TableName

NO_TABLE: frozenset[str] = frozenset()
"""The columns of a table that does not exist. None stands for unknown columns."""


class SegmentFinder:
    """Locates rows of one table among the statements about it (`events`, in order). `columns`: those before them, in lower
    case."""

    def __init__(self, name: TableName, events: Sequence[DdlEvent], columns: frozenset[str] | None) -> None:
        self._name = name
        self._events = events
        self._columns = [columns]
        for event in events:
            for change in event.changes:
                columns = _columns_after(columns, change, name)
            self._columns.append(columns)

    def locate(self, low: int, high: int, columns: Iterable[str]) -> tuple[int, int | None]:
        """Returns the segment of a row that lies between the segments `low` and `high`, and the index of the first statement
        whose order against the row is unknown (None: the segment is certain).

        The row lies where the table has its columns and the fewest others: a partial image lacks some
        (binlog_row_image MINIMAL, NOBLOB).
        """
        names = frozenset(name.lower() for name in columns)
        found = {at: self._columns[at] for at in range(low, high + 1)}
        missing = {at: len((has or names) - names) for at, has in found.items() if has is None or names <= has}
        if not missing:
            return low, low
        fitting = [at for at, number in missing.items() if number == min(missing.values())]
        first, last = fitting[0], fitting[-1]
        doubtful = next((at for at in range(first, last) if self._matters(at)), None)
        return (last, None) if doubtful is None else (first, doubtful)

    def _matters(self, at: int) -> bool:
        """Whether it matters on which side of a statement a row lies, if it fits both sides."""
        missing = self._columns[at] == NO_TABLE
        return any(_change_matters(change, self._name, missing) for change in self._events[at].changes)


def _columns_after(columns: frozenset[str] | None, change: SchemaChange, name: TableName) -> frozenset[str] | None:
    if isinstance(change, CreateTable) and change.name == name:
        is_kept = change.if_not_exists and columns != NO_TABLE
        return columns if is_kept else frozenset(column.name.lower() for column in change.schema.columns)
    if name in change.names().added or (isinstance(change, RecoverTable) and (change.new_name or change.name) == name):
        return None
    if isinstance(change, (DropTable, RenameTable)) and change.name == name:
        return NO_TABLE
    if isinstance(change, AlterTable) and change.name == name:
        return _columns_after_alter(columns, change)
    return columns


def _columns_after_alter(columns: frozenset[str] | None, change: AlterTable) -> frozenset[str] | None:
    added, dropped = set(), set()
    for clause in change.clauses:
        match clause:
            case RenameTo():
                return NO_TABLE
            case AddColumn():
                added.add(clause.column.name.lower())
            case DropColumn():
                dropped.add(clause.name.lower())
            case ChangeColumn():
                added.add(clause.column.name.lower())
                dropped.add(clause.name.lower())
            case RenameColumn():
                added.add(clause.new_name.lower())
                dropped.add(clause.name.lower())
    return (columns - dropped) | added if columns else None


def _change_matters(change: SchemaChange, name: TableName, missing: bool) -> bool:
    """As `SegmentFinder._matters`. `missing`: no table exists, so CREATE TABLE IF NOT EXISTS creates one."""
    if isinstance(change, (CreateTable, CreateTableLike)) and change.if_not_exists and not missing:
        return False
    if isinstance(change, (RenameTable, RecoverTable)):
        return name in (change.name, change.new_name)
    if isinstance(change, (CreateTable, CreateTableLike, TruncateTable, DropTable)):
        return change.name == name
    if not isinstance(change, AlterTable):
        return False
    if change.name != name:
        return any(
            (isinstance(clause, RenameTo) and clause.name == name)
            or (isinstance(clause, ExchangePartition) and clause.table == name)
            for clause in change.clauses
        )
    return any(map(_clause_matters, change.clauses))


def _clause_matters(clause: Clause) -> bool:
    """As `SegmentFinder._matters`, for a clause of ALTER TABLE.

    ADD and DROP of a column do not matter: a row that fits both sides is the same on both. Nor does another type, except
    for the numbers of ENUM and SET, which mean nothing without the labels.
    """
    if isinstance(clause, ChangeColumn):
        return clause.name.lower() != clause.column.name.lower() or clause.column.type.base in ("enum", "set")
    return isinstance(clause, (RenameTo, RenameColumn, PartitionRowsClause))
