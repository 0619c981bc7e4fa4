"""Late statements: statements that arrive after row changes which follow them.

Without TSOs one partition may be ahead of the partition that carries DDL. A cut with a late statement replays the later
rows of its tables, so that they are applied after the statement. Rows of keyless tables would count twice, so they are
replayed only after a statement that empties the table; otherwise the table gets a gap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.changes.row_filters import is_at_or_after, is_in_table, is_in_tables
from cdc_pipeline.mirrors.model.source_tables import SourceTableName
from cdc_pipeline.mysql.model.schema_changes import (
    AlterTable,
    CreateTable,
    DropColumn,
    DropTable,
    OfSourceTable,
    TruncateTable,
)
from cdc_pipeline.mysql.model.table import TableName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import Column, DataFrame

    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.model.source_tables import SourceTable
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mysql.model.schema_changes import SchemaChange

_ALWAYS = -1
"""Before all times."""


@dataclass(frozen=True)
class Replay:
    """The time from which a cut reads a table's earlier rows again."""

    commit_ts: int
    ts: int
    """For Canal: the same by its clock (ms)."""
    reapplies: bool
    """Whether those after a statement of the cut are applied again."""

    def earlier_of(self, other: Replay) -> Replay:
        """Covers the rows of both."""
        return Replay(min(self.commit_ts, other.commit_ts), min(self.ts, other.ts), self.reapplies or other.reapplies)

    def is_replayed(self, name: TableName | SourceTableName) -> Column:
        """Whether a row change is of the table and at or after this time."""
        return is_in_table(name) & is_at_or_after(self.commit_ts, self.ts)


def precedes_rows(event: DdlEvent, state: MirrorState | SourceTable) -> bool:
    """Whether the statement precedes the rows from which this mirror was inferred."""
    return not event.exact_ts and state.inferred and state.since is not None and event.commit_ts <= state.since


def tables_to_replay(
    events: Iterable[DdlEvent],
    lookup: Callable[[TableName], MirrorState | None],
    keyless: Callable[[MirrorState], bool],
) -> dict[TableName | SourceTableName, Replay]:
    """The tables whose rows of earlier cuts are read again, because they may follow statements of this cut.

    If a mirror was inferred from rows and this cut has the statement that created or renamed the table, all its rows are
    replayed. `lookup` returns a mirror as the last cut left it.
    """
    found: dict[TableName | SourceTableName, Replay] = {}
    for event in events:
        for change in event.changes if not event.exact_ts else ():
            for name in _names(change):
                state = lookup(name if isinstance(name, TableName) else name.mirror)
                if state is None or (keyless(state) and _only_drops_columns(change)):
                    continue
                inner = change.change if isinstance(change, OfSourceTable) else change
                known = state if isinstance(name, TableName) else state.source_table(name.source)
                is_created = isinstance(inner, CreateTable) or name in change.names().added
                replays_all = is_created and known is not None and precedes_rows(event, known)
                if isinstance(change, OfSourceTable) and is_created and not replays_all:
                    continue
                is_emptied = replays_all or isinstance(inner, (TruncateTable, DropTable)) or _replaces(inner)
                since = Replay(event.commit_ts, event.ts or 0, is_emptied or not keyless(state))
                since = Replay(_ALWAYS, _ALWAYS, True) if replays_all else since
                found[name] = found[name].earlier_of(since) if name in found else since
    return found


def _names(change: SchemaChange) -> tuple[TableName | SourceTableName, ...]:
    """The tables whose rows may have arrived before this change though they follow it."""
    if isinstance(change, OfSourceTable):
        is_emptied = isinstance(change.change, (CreateTable, TruncateTable, DropTable))
        return (SourceTableName(change.name, change.source_table),) if is_emptied else ()
    return change.names().touched


def _replaces(change: SchemaChange) -> bool:
    """Whether the change replaces an existing table."""
    return isinstance(change, CreateTable) and not change.if_not_exists


def _only_drops_columns(change: SchemaChange) -> bool:
    """Whether the change only drops columns: the mirror needs no replay, because it drops their values in any order."""
    return isinstance(change, AlterTable) and all(isinstance(clause, DropColumn) for clause in change.clauses)


def with_replayed_rows(changes: DataFrame, tables: Mapping[TableName | SourceTableName, Replay]) -> DataFrame:
    """Sets `is_new` of the rows to replay: `applied_before` rows after a statement of this cut. `changes` has `segment`."""
    names = [name for name, since in tables.items() if isinstance(name, TableName) and since.reapplies]
    if not names:
        return changes
    is_replayed = F.col("applied_before") & (F.col("segment") > 0) & is_in_tables(names)
    return changes.withColumn("is_new", F.col("is_new") | is_replayed)


def early_row_gaps(changes: DataFrame, tables: Mapping[TableName | SourceTableName, Replay]) -> dict[TableName, Gap]:
    """The gaps of keyless tables whose rows arrived before a statement that they follow, and cannot be replayed."""
    names = [name for name, since in tables.items() if isinstance(name, TableName) and not since.reapplies]
    if not names:
        return {}
    is_early = F.col("applied_before") & (F.col("segment") > 0) & is_in_tables(names)
    rows = changes.where(is_early).groupBy("database", "table").count().collect()
    message = (
        "row change(s) of a keyless table arrived before a statement that they follow; a rebuild applies them in order"
    )
    return {
        TableName(row["database"], row["table"]): Gap(GapKind.LATE_DDL, f"{row['count']} {message}") for row in rows
    }
