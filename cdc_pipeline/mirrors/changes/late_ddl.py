"""Statements that come after rows which follow them: without TSOs a partition may be ahead of the one that DDL travels in.

Their tables' rows from then on come again, so that they lie after the statement once more. Rows of a table without a key
cannot: they would be counted twice, unless the statement empties the table. Such a table is marked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.changes.row_filters import is_in_table, is_in_tables, not_older
from cdc_pipeline.mirrors.model.shards import ShardName
from cdc_pipeline.mysql.model.schema_changes import (
    AlterTable,
    CreateTable,
    DropColumn,
    DropTable,
    OfShard,
    TruncateTable,
)
from cdc_pipeline.mysql.model.table import TableName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import Column, DataFrame

    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.model.shards import Shard
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mysql.model.schema_changes import SchemaChange

_ALWAYS = -1
"""A time before all others."""


@dataclass(frozen=True)
class ComesAgain:
    """From when on the rows of a table come along again: by `commit_ts`, and of Canal also by its clock (ms). `again`: those
    that lie after a statement of the cut are let in once more."""

    commit_ts: int
    ts: int
    again: bool

    def earlier_of(self, other: ComesAgain) -> ComesAgain:
        return ComesAgain(min(self.commit_ts, other.commit_ts), min(self.ts, other.ts), self.again or other.again)

    def of_rows(self, name: TableName | ShardName) -> Column:
        """Whether a row change of the table is meant."""
        return is_in_table(name) & not_older(self.commit_ts, self.ts)


def comes_before(event: DdlEvent, state: MirrorState | Shard) -> bool:
    """Whether the statement is older than the rows that have made this mirror."""
    return not event.exact_ts and state.inferred and state.since is not None and event.commit_ts <= state.since


def tables_that_come_again(
    events: Iterable[DdlEvent],
    lookup: Callable[[TableName], MirrorState | None],
    keyless: Callable[[MirrorState], bool],
) -> dict[TableName | ShardName, ComesAgain]:
    """The tables of which rows of earlier cuts come along, because they may lie after statements of this cut. `lookup` gives
    a mirror as the last cut left it.

    A mirror that rows have made, before the statement that made the table or gave it its name, gets all of its rows again.
    Of a table without a key rows are let in again only after a statement that empties it.
    """
    found: dict[TableName | ShardName, ComesAgain] = {}
    for event in events:
        for change in event.changes if not event.exact_ts else ():
            for name in _names(change):
                state = lookup(name if isinstance(name, TableName) else name.mirror)
                if state is None or (keyless(state) and _only_drops_columns(change)):
                    continue
                inner = change.change if isinstance(change, OfShard) else change
                known = state if isinstance(name, TableName) else state.shard(name.source)
                made = isinstance(inner, CreateTable) or name in change.names().added
                anew = made and known is not None and comes_before(event, known)
                if isinstance(change, OfShard) and made and not anew:
                    continue
                emptied = anew or isinstance(inner, (TruncateTable, DropTable)) or _replaces(inner)
                since = ComesAgain(event.commit_ts, event.ts or 0, emptied or not keyless(state))
                since = ComesAgain(_ALWAYS, _ALWAYS, True) if anew else since
                found[name] = found[name].earlier_of(since) if name in found else since
    return found


def _names(change: SchemaChange) -> tuple[TableName | ShardName, ...]:
    """The tables whose rows may have come before a statement that they follow."""
    if isinstance(change, OfShard):
        ends = isinstance(change.change, (CreateTable, TruncateTable, DropTable))
        return (ShardName(change.name, change.shard),) if ends else ()
    return change.names().touched


def _replaces(change: SchemaChange) -> bool:
    """Whether a table that is there is set aside for another one."""
    return isinstance(change, CreateTable) and not change.if_not_exists


def _only_drops_columns(change: SchemaChange) -> bool:
    """Rows without the columns are as they are in the mirror that has them no more."""
    return isinstance(change, AlterTable) and all(isinstance(clause, DropColumn) for clause in change.clauses)


def let_in_again(changes: DataFrame, tables: Mapping[TableName | ShardName, ComesAgain]) -> DataFrame:
    """`changes` with their `segment`, of which those are `fresh` too that earlier cuts have taken in and that lie after a
    statement of this cut, of tables that are let in again."""
    names = [name for name, since in tables.items() if isinstance(name, TableName) and since.again]
    if not names:
        return changes
    again = F.col("taken") & (F.col("segment") > 0) & is_in_tables(names)
    return changes.withColumn("fresh", F.col("fresh") | again)


def came_before_statements(
    changes: DataFrame, tables: Mapping[TableName | ShardName, ComesAgain]
) -> dict[TableName, Gap]:
    """The gaps of tables without a key of which rows have come before statements that they follow, and cannot come again."""
    names = [name for name, since in tables.items() if isinstance(name, TableName) and not since.again]
    if not names:
        return {}
    of_them = F.col("taken") & (F.col("segment") > 0) & is_in_tables(names)
    rows = changes.where(of_them).groupBy("database", "table").count().collect()
    words = (
        "row change(s) came before a statement that they follow, of a table without a key: a rebuild puts them in order"
    )
    return {TableName(row["database"], row["table"]): Gap(GapKind.LATE_DDL, f"{row['count']} {words}") for row in rows}
