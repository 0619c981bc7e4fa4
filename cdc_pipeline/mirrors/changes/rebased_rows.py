"""Rebases row changes that arrive after statements which they precede and which an earlier cut applied.

Without TSOs one partition may be behind the partition that carries DDL. What the statement did to existing rows is done to
such a row as well: columns are renamed or dropped, the table is renamed, and the row is discarded if the table was emptied
or dropped since. If a statement cannot be applied to a single row, the table gets a gap; a rebuild applies the row in order.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.gaps import GapKind, statement_gap
from cdc_pipeline.mirrors.changes.rebased_values import ROUNDED, rounded_sql, text_stays
from cdc_pipeline.mirrors.changes.segments import with_segments
from cdc_pipeline.mysql.ddl.column_types import type_or_text
from cdc_pipeline.mysql.expressions.values import bind_sql
from cdc_pipeline.mysql.model.schema_changes import (
    AlterTable,
    ChangeColumn,
    DropColumn,
    DropDatabase,
    DropTable,
    ExchangePartition,
    NotSupported,
    PartitionRowsClause,
    RenameColumn,
    TruncateTable,
)
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import BATCH_POSITION
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from cdc_pipeline.gaps import Gap
    from cdc_pipeline.mirrors.changes.segments import Evidence, TypesOf, UnknownOrder
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mysql.model.schema_changes import Clause, SchemaChange
    from cdc_pipeline.mysql.model.table import MySqlType


@dataclass
class Rebase:
    """The effect of later statements on a row."""

    name: TableName
    """The name of its table after them."""
    columns: dict[str, str | None] = field(default_factory=dict)
    """Renamed column → its new name, or None if it was dropped."""
    rounded: dict[str, tuple[MySqlType, ...]] = field(default_factory=dict)
    """Column → the types that round its value, in order."""
    conversions: dict[str, list[tuple[MySqlType, DdlEvent]]] = field(default_factory=dict)
    """Column → all its later types, each with its statement."""
    superseded: bool = False
    """Whether the row no longer exists."""
    inapplicable: list[DdlEvent] = field(default_factory=list)
    """The statements that cannot be applied to a single row."""

    def apply(self, event: DdlEvent) -> None:
        for change in event.changes:
            if not self.superseded:
                self._apply(change, event)

    def _apply(self, change: SchemaChange, event: DdlEvent) -> None:
        is_emptied = isinstance(change, (TruncateTable, DropTable)) and change.name == self.name
        if is_emptied or (isinstance(change, DropDatabase) and change.drops(self.name)):
            self.superseded = True
        elif isinstance(change, AlterTable) and change.name == self.name:
            self._alter(change.clauses, event)
        elif (isinstance(change, NotSupported) and change.name == self.name) or (
            isinstance(change, AlterTable)
            and any(isinstance(clause, ExchangePartition) and clause.table == self.name for clause in change.clauses)
        ):
            self.inapplicable.append(event)
        new = dict(change.names().renamed).get(self.name)
        if new is not None:
            self.name = new
        elif self.name in change.names().added and not getattr(change, "if_not_exists", False):
            # the table of the row no longer existed
            self.superseded = True

    def _alter(self, clauses: Sequence[Clause], event: DdlEvent) -> None:
        renames: dict[str, str | None] = {}
        for clause in clauses:
            if isinstance(clause, PartitionRowsClause):
                self.inapplicable.append(event)
            elif isinstance(clause, DropColumn):
                renames[clause.name] = None
            elif isinstance(clause, RenameColumn):
                renames[clause.name] = clause.new_name
            elif isinstance(clause, ChangeColumn):
                renames[clause.name] = clause.column.name
                self._convert(clause, event)
                if clause.column.type.base in ("enum", "set"):
                    self.inapplicable.append(event)  # an ENUM or SET number may mean another label now
        folded = {name.casefold(): new for name, new in renames.items()}
        known = {name.casefold() for pair in self.columns.items() for name in pair if name is not None}
        renamed = {
            old: name if name is None else folded.get(name.casefold(), name) for old, name in self.columns.items()
        }
        self.columns = renamed | {old: new for old, new in renames.items() if old.casefold() not in known}

    def _convert(self, clause: ChangeColumn, event: DdlEvent) -> None:
        named, kind = clause.name.casefold(), clause.column.type
        found = [old for old, now in self.columns.items() if now is not None and now.casefold() == named] or [
            clause.name
        ]
        for old in found:
            self.conversions.setdefault(old, []).append((kind, event))
            if kind.base in ROUNDED:
                self.rounded[old] = (*self.rounded.get(old, ()), kind)

    def inapplicable_to(self, types: Mapping[str, MySqlType]) -> list[DdlEvent]:
        """The statements that cannot be applied to a row with these column types: `inapplicable`, and those that convert a
        value to another kind."""
        found = list(self.inapplicable)
        by_name = {name.casefold(): kind for name, kind in types.items()}
        for name, conversions in self.conversions.items():
            current = by_name.get(name.casefold())
            for kind, event in conversions if current is not None else ():
                if current is not None and not text_stays(current, kind):
                    found.append(event)
                    break
                current = kind
        return found


def rebase_for(name: TableName, later: Iterable[DdlEvent]) -> Rebase:
    """The effect of these statements on a row of the table that precedes them."""
    rebase = Rebase(name)
    for event in later:
        rebase.apply(event)
    return rebase


def rebased_changes(changes: DataFrame, past: Sequence[DdlEvent], evidence: Evidence) -> DataFrame:
    """The changes after the statements of earlier cuts that they precede, without superseded ones. `past` is in order."""
    return _apply_rebases(_with_past_segment(changes, past, evidence), _rebases(past)) if past else changes


def rebase_gaps(
    changes: DataFrame, past: Sequence[DdlEvent], evidence: Evidence, doubts: Iterable[UnknownOrder], types_of: TypesOf
) -> dict[TableName, tuple[Gap, ...]]:
    """The gaps of tables with new changes that precede inapplicable statements, or may precede statements (`doubts`)."""
    gaps: dict[TableName, tuple[Gap, ...]] = defaultdict(tuple)
    for doubt in doubts:
        gaps[doubt.name] += (doubt.gap,)
    rebases = {key: rebase for key, rebase in _rebases(past).items() if rebase.inapplicable or rebase.conversions}
    if not rebases:
        return dict(gaps)
    keys = [(name.database, name.table, segment) for name, segment in rebases]
    small = small_frame(changes.sparkSession, keys, _KEY)
    rows = (
        _with_past_segment(changes, past, evidence)
        .where("NOT applied_before")
        .join(F.broadcast(small), list(_KEY_COLUMNS))
    )
    counts = F.count("*").alias("count"), F.min(F.struct(*BATCH_POSITION, "dialect")).alias("first")
    found = rows.groupBy(*_KEY_COLUMNS).agg(*counts).collect()
    # rows between the same two statements have the same types
    types = types_of({tuple(row["first"])[:4]: row["first"]["dialect"] for row in found})
    for row in found:
        rebase = rebases[TableName(row["database"], row["table"]), row["past_segment"]]
        message = tuple(row["first"])[:4]
        named = types[message].mysql_types if message in types else {}
        statements = rebase.inapplicable_to({name: type_or_text(text) for name, text in named.items()})
        if not statements:
            continue
        text = (
            f"{row['count']} row change(s) arrived after a later statement that cannot be applied to them; a rebuild "
            "applies them in order"
        )
        gaps[rebase.name] += (statement_gap(GapKind.LATE_CHANGES, text, statements[0].position),)
    return dict(gaps)


def _with_past_segment(changes: DataFrame, past: Sequence[DdlEvent], evidence: Evidence) -> DataFrame:
    """Adds `past_segment`: how many of the `past` statements about its table lie before a row."""
    return with_segments(changes, past, evidence).withColumnRenamed("segment", "past_segment")


_KEY_COLUMNS = ("database", "table", "past_segment")
_KEY = "`database` STRING, `table` STRING, past_segment INT"
_REBASE = (
    "to_database STRING, to_table STRING, superseded BOOLEAN, renames MAP<STRING, STRING>, dropped ARRAY<STRING>, "
    "chains MAP<STRING, INT>"
)


def _rebases(past: Sequence[DdlEvent]) -> dict[tuple[TableName, int], Rebase]:
    """(table, `past_segment`) → the effect of the statements after a row of that segment."""
    rebases: dict[tuple[TableName, int], Rebase] = {}
    segments: dict[TableName, int] = defaultdict(int)
    for index, event in enumerate(past):
        for name in event.names():
            rebases[name, segments[name]] = rebase_for(name, past[index:])
            segments[name] += 1
    return rebases


def _apply_rebases(rows: DataFrame, rebases: Mapping[tuple[TableName, int], Rebase]) -> DataFrame:
    columns = [name for name in rows.columns if name != "past_segment"]
    chains = list(dict.fromkeys(types for rebase in rebases.values() for types in rebase.rounded.values()))
    small = small_frame(
        rows.sparkSession,
        [
            (
                *(name.database, name.table, segment, rebase.name.database, rebase.name.table, rebase.superseded),
                {old.lower(): new for old, new in rebase.columns.items() if new is not None and new != old},
                [old.lower() for old, new in rebase.columns.items() if new is None],
                {old.lower(): chains.index(types) for old, types in rebase.rounded.items()},
            )
            for (name, segment), rebase in rebases.items()
        ],
        f"{_KEY}, {_REBASE}",
    )
    found = rows.join(F.broadcast(small), list(_KEY_COLUMNS), "left")
    found = found.where(~F.coalesce("superseded", F.lit(False)))
    names = F.transform("key_names", lambda name: F.coalesce(F.col("renames")[F.lower(name)], name))
    return found.select(
        *(
            {
                "database": F.coalesce("to_database", "database"),
                "table": F.coalesce("to_table", "table"),
                "before": _rebased_image("before", chains),
                "after": _rebased_image("after", chains),
                "key_names": F.when(F.col("renames").isNull(), F.col("key_names")).otherwise(names),
            }.get(name, F.col(name)).alias(name)
            for name in columns
        )
    )


def _rebased_image(name: str, chains: Sequence[tuple[MySqlType, ...]]) -> Column:
    value = "e.value"
    if chains:
        rounded = [f"WHEN {number} THEN {_rounded_through(value, types)}" for number, types in enumerate(chains)]
        value = f"CASE chains[lower(e.key)] {' '.join(rounded)} ELSE {value} END"
    kept = f"filter(map_entries({name}), e -> NOT array_contains(dropped, lower(e.key)))"
    renamed = f"transform({kept}, e -> struct(coalesce(renames[lower(e.key)], e.key), {value}))"
    is_changed = "renames IS NOT NULL AND (size(renames) > 0 OR size(dropped) > 0 OR size(chains) > 0)"
    return F.expr(f"CASE WHEN {is_changed} THEN map_from_entries({renamed}) ELSE {name} END")


def _rounded_through(text: str, types: Sequence[MySqlType]) -> str:
    """SQL that rounds the expression `text` to each of the types in turn."""
    for kind in types:
        text = bind_sql(text, partial(rounded_sql, kind=kind))
    return text
