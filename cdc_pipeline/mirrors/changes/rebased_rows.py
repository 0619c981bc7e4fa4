"""Row changes that come after statements which they precede, and that an earlier cut has carried out.

Without TSOs a partition may be behind the one that DDL travels in. What the statement did to the rows that were there it
has to do to such a row as well: its columns get their new names, or go; its table gets its new name; where the table was
emptied or dropped since, nothing is left of the row. What cannot be done to one row is a gap: a rebuild takes the row in at
its place.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.gaps import GapKind, of_statement
from cdc_pipeline.mirrors.changes.rebased_values import ROUNDED, rounded_sql, text_stays
from cdc_pipeline.mirrors.changes.segments import MESSAGE, with_segments
from cdc_pipeline.mysql.ddl.column_types import type_in_words
from cdc_pipeline.mysql.expressions.values import bound
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
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from cdc_pipeline.gaps import Gap
    from cdc_pipeline.mirrors.changes.segments import Doubt, Evidence, TypesOf
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mysql.model.schema_changes import Clause, SchemaChange
    from cdc_pipeline.mysql.model.table import MySqlType


@dataclass
class Carriage:
    """What a row goes through. `name` is its table's name now; `columns` are the new names of those that have another one,
    None for one that is gone; `types` are those that a column's value went through and by which it is rounded; `changes` are
    all types that a column went through, each with its statement; `superseded`: nothing is left of it; `unable` are the
    statements that cannot be done to it."""

    name: TableName
    columns: dict[str, str | None] = field(default_factory=dict)
    types: dict[str, tuple[MySqlType, ...]] = field(default_factory=dict)
    changes: dict[str, list[tuple[MySqlType, DdlEvent]]] = field(default_factory=dict)
    superseded: bool = False
    unable: list[DdlEvent] = field(default_factory=list)

    def through(self, event: DdlEvent) -> None:
        for change in event.changes:
            if not self.superseded:
                self._through(change, event)

    def _through(self, change: SchemaChange, event: DdlEvent) -> None:
        ended = isinstance(change, (TruncateTable, DropTable)) and change.name == self.name
        if ended or (isinstance(change, DropDatabase) and change.has(self.name)):
            self.superseded = True
        elif isinstance(change, AlterTable) and change.name == self.name:
            self._altered(change.clauses, event)
        elif (isinstance(change, NotSupported) and change.name == self.name) or (
            isinstance(change, AlterTable)
            and any(isinstance(clause, ExchangePartition) and clause.table == self.name for clause in change.clauses)
        ):
            self.unable.append(event)
        new = dict(change.names().renamed).get(self.name)
        if new is not None:
            self.name = new
        elif self.name in change.names().added and not getattr(change, "if_not_exists", False):
            # there was none of the name any more
            self.superseded = True

    def _altered(self, clauses: Sequence[Clause], event: DdlEvent) -> None:
        renames: dict[str, str | None] = {}
        for clause in clauses:
            if isinstance(clause, PartitionRowsClause):
                self.unable.append(event)
            elif isinstance(clause, DropColumn):
                renames[clause.name] = None
            elif isinstance(clause, RenameColumn):
                renames[clause.name] = clause.new_name
            elif isinstance(clause, ChangeColumn):
                renames[clause.name] = clause.column.name
                self._changed(clause, event)
                if clause.column.type.base in ("enum", "set"):
                    self.unable.append(event)  # the number of a label may mean another one now
        folded = {name.casefold(): new for name, new in renames.items()}
        known = {name.casefold() for pair in self.columns.items() for name in pair if name is not None}
        now = {old: name if name is None else folded.get(name.casefold(), name) for old, name in self.columns.items()}
        self.columns = now | {old: new for old, new in renames.items() if old.casefold() not in known}

    def _changed(self, clause: ChangeColumn, event: DdlEvent) -> None:
        named, kind = clause.name.casefold(), clause.column.type
        found = [old for old, now in self.columns.items() if now is not None and now.casefold() == named] or [
            clause.name
        ]
        for old in found:
            self.changes.setdefault(old, []).append((kind, event))
            if kind.base in ROUNDED:
                self.types[old] = (*self.types.get(old, ()), kind)

    def unable_with(self, types: Mapping[str, MySqlType]) -> list[DdlEvent]:
        """The statements that cannot be done to a row whose columns have these types: `unable`, and those by which a value
        becomes one of another kind."""
        found = list(self.unable)
        for name, changes in self.changes.items():
            before = types.get(name)
            for kind, event in changes if before is not None else ():
                if before is not None and not text_stays(before, kind):
                    found.append(event)
                    break
                before = kind
        return found


def carriage(name: TableName, later: Iterable[DdlEvent]) -> Carriage:
    """What a row of the table goes through that lies before these statements."""
    found = Carriage(name)
    for event in later:
        found.through(event)
    return found


def carried_changes(changes: DataFrame, past: Sequence[DdlEvent], evidence: Evidence) -> DataFrame:
    """The changes as they are after the statements of earlier cuts that they precede; those of which nothing is left are not
    among them. `past` are those statements, in order."""
    return _rewritten(_passed(changes, past, evidence), _ways(past)) if past else changes


def carried_gaps(
    changes: DataFrame, past: Sequence[DdlEvent], evidence: Evidence, doubts: Iterable[Doubt], types_of: TypesOf
) -> dict[TableName, tuple[Gap, ...]]:
    """The gaps of tables of which new changes precede statements that cannot be done to them, or may do so."""
    gaps: dict[TableName, tuple[Gap, ...]] = defaultdict(tuple)
    for doubt in doubts:
        gaps[doubt.name] += (doubt.gap,)
    unable = {place: way for place, way in _ways(past).items() if way.unable or way.changes}
    if not unable:
        return dict(gaps)
    names = [(name.database, name.table, passed) for name, passed in unable]
    small = small_frame(changes.sparkSession, names, _PLACE)
    rows = _passed(changes, past, evidence).where("NOT taken").join(F.broadcast(small), ["database", "table", "passed"])
    counts = F.count("*").alias("count"), F.min(F.struct(*MESSAGE, "dialect")).alias("first")
    found = rows.groupBy("database", "table", "passed").agg(*counts).collect()
    # rows between the same two statements have the same types
    types = types_of({tuple(row["first"])[:4]: row["first"]["dialect"] for row in found})
    for row in found:
        way = unable[TableName(row["database"], row["table"]), row["passed"]]
        place = tuple(row["first"])[:4]
        named = types[place].mysql_types if place in types else {}
        statements = way.unable_with({name: type_in_words(text) for name, text in named.items()})
        if not statements:
            continue
        said = f"{row['count']} row change(s) came after a statement that they precede, and that cannot be done to them"
        words = f"{said}: a rebuild takes them in at their place"
        gaps[way.name] += (of_statement(GapKind.LATE_CHANGES, words, said, statements[0].sql),)
    return dict(gaps)


def _passed(changes: DataFrame, past: Sequence[DdlEvent], evidence: Evidence) -> DataFrame:
    """`changes` with `passed`: how many of the statements that touch their table lie before them."""
    return with_segments(changes, past, evidence).withColumnRenamed("segment", "passed")


_PLACE = "`database` STRING, `table` STRING, passed INT"
_WAY = (
    "to_database STRING, to_table STRING, superseded BOOLEAN, renames MAP<STRING, STRING>, gone ARRAY<STRING>, "
    "kinds MAP<STRING, INT>"
)


def _ways(past: Sequence[DdlEvent]) -> dict[tuple[TableName, int], Carriage]:
    """By a table's name and how many of the statements that touch it lie before a row: what such a row goes through."""
    found: dict[tuple[TableName, int], Carriage] = {}
    passed: dict[TableName, int] = defaultdict(int)
    for place, event in enumerate(past):
        for name in event.names():
            found[name, passed[name]] = carriage(name, past[place:])
            passed[name] += 1
    return found


def _rewritten(rows: DataFrame, ways: Mapping[tuple[TableName, int], Carriage]) -> DataFrame:
    columns = [name for name in rows.columns if name != "passed"]
    kinds = list(dict.fromkeys(types for way in ways.values() for types in way.types.values()))
    small = small_frame(
        rows.sparkSession,
        [
            (
                *(name.database, name.table, passed, way.name.database, way.name.table, way.superseded),
                {old: new for old, new in way.columns.items() if new is not None and new != old},
                [old for old, new in way.columns.items() if new is None],
                {old: kinds.index(types) for old, types in way.types.items()},
            )
            for (name, passed), way in ways.items()
        ],
        f"{_PLACE}, {_WAY}",
    )
    found = rows.join(F.broadcast(small), ["database", "table", "passed"], "left")
    found = found.where(~F.coalesce("superseded", F.lit(False)))
    names = F.transform("key_names", lambda name: F.coalesce(F.col("renames")[name], name))
    return found.select(
        *(
            {
                "database": F.coalesce("to_database", "database"),
                "table": F.coalesce("to_table", "table"),
                "before": _image("before", kinds),
                "after": _image("after", kinds),
                "key_names": F.when(F.col("renames").isNull(), F.col("key_names")).otherwise(names),
            }.get(name, F.col(name)).alias(name)
            for name in columns
        )
    )


def _image(name: str, kinds: Sequence[tuple[MySqlType, ...]]) -> Column:
    value = "e.value"
    if kinds:
        made = [f"WHEN {number} THEN {_through_types(value, types)}" for number, types in enumerate(kinds)]
        value = f"CASE kinds[e.key] {' '.join(made)} ELSE {value} END"
    kept = f"filter(map_entries({name}), e -> NOT array_contains(gone, e.key))"
    renamed = f"transform({kept}, e -> struct(coalesce(renames[e.key], e.key), {value}))"
    changed = "renames IS NOT NULL AND (size(renames) > 0 OR size(gone) > 0 OR size(kinds) > 0)"
    return F.expr(f"CASE WHEN {changed} THEN map_from_entries({renamed}) ELSE {name} END")


def _through_types(text: str, types: Sequence[MySqlType]) -> str:
    for kind in types:
        text = bound(text, partial(rounded_sql, kind=kind))
    return text
