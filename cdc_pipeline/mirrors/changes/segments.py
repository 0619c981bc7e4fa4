"""Segments: how many of the cut's statements about its table lie before a row change.

A row with a TSO lies after a statement with a lower TSO. At the statement's own TSO it lies before it. Without TSOs:

- Within one partition Canal's messages are in binlog order, so offsets decide. `es` does not: it is when a statement began,
  and rows written during a long ALTER are logged before it.
- A row lies after a baseline if its `at` is greater: the event's is chosen for that (`mirrors.operations.adoption`).
- Between partitions `at` decides, then the offset within one partition. Between two topics of one batch of Canal nothing
  decides: with `canal.mq.dynamicTopic` a thread per topic builds the messages (canal-facts 49).

If the position does not decide, the columns of the row may (`SegmentFinder`). Otherwise the table gets a gap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, dialect_has_trait, trait_sql
from cdc_pipeline.gaps import Gap, GapKind, statement_gap
from cdc_pipeline.mirrors.model.ddl_events import BASELINE_TOPIC, SAME_BATCH_MS, DdlEvent
from cdc_pipeline.mysql.model.schema_changes import (
    AddColumn,
    AlterTable,
    ChangeColumn,
    Clause,
    CreateTable,
    CreateTableLike,
    DropColumn,
    OfSourceTable,
    PartitionRowsClause,
    RenameColumn,
    RenameTo,
    SchemaChange,
)
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import BATCH_POSITION, BatchPosition, Position
from cdc_pipeline.spark.small_frames import small_frame

ColumnsOf = Callable[[TableName], frozenset[str] | None]
"""Table → its columns in lower case (`NO_TABLE`: there is none); None if they are unknown."""

Evidence: TypeAlias = tuple[tuple[BatchPosition, int, int], ...]
"""The segments of rows whose position leaves them open: (position of the message, first segment in which the row can lie,
segment in which it lies)."""
NO_TABLE: frozenset[str] = frozenset()
"""The columns of a table that does not exist. None stands for unknown columns."""
_BOUND = "at: BIGINT, topic: STRING, `partition`: INT, `offset`: BIGINT, ts: BIGINT, message_id: BIGINT"
_BOUNDS = f"ARRAY<STRUCT<{_BOUND}>>"
_OTHER_TOPIC_OF_BATCH = (
    f"topic <> bound.topic AND message_id = bound.message_id AND abs(ts - bound.ts) < {SAME_BATCH_MS}"
)
_SAME_PARTITION = "topic = bound.topic AND `partition` = bound.`partition`"
_IN_LOG_ORDER = trait_sql(Trait.IN_LOG_ORDER)
# Canal's clock, and the numbers of DataWorks, order what has the same time upstream
_AT = f"if({_IN_LOG_ORDER}, at, commit_ts)"
# whether a row lies after a statement; NULL if its position does not decide
_LIES_AFTER = (
    f"CASE WHEN bound.topic LIKE '{BASELINE_TOPIC}%' THEN at > bound.at "
    f"WHEN {_IN_LOG_ORDER} AND {_SAME_PARTITION} THEN `offset` > bound.`offset` "
    f"WHEN {_IN_LOG_ORDER} AND {_OTHER_TOPIC_OF_BATCH} THEN NULL "
    f"WHEN exact_ts OR {_AT} <> bound.at THEN {_AT} > bound.at "
    f"WHEN {_SAME_PARTITION} THEN `offset` > bound.`offset` END"
)
# `lies_after` has _LIES_AFTER for each statement. The first and the last segment in which a row can lie:
_LOW = "coalesce(array_max(transform(lies_after, (after, at) -> if(after, at + 1, 0))), 0)"
_HIGH = (
    "coalesce(array_min(transform(lies_after, (after, at) -> if(NOT after AND at >= low, at, NULL))), size(lies_after))"
)


def with_segments(changes: DataFrame, events: Iterable[DdlEvent], evidence: Evidence = ()) -> DataFrame:
    """Adds `segment`: how many statements about its table lie before a row, by its position or by the evidence."""
    placed = _with_segment_range(changes, _events_by_table(events))
    if not evidence:
        return placed.withColumnRenamed("low", "segment").drop("high")
    small = small_frame(
        changes.sparkSession,
        [(*message, low, segment) for message, low, segment in evidence],
        "batch_id BIGINT, topic STRING, `partition` INT, `offset` BIGINT, low INT, evident INT",
    )
    found = placed.join(F.broadcast(small), [*BATCH_POSITION, "low"], "left")
    return found.withColumn("segment", F.coalesce("evident", "low")).drop("low", "high", "evident")


def find_evidence(
    changes: DataFrame, events: Sequence[DdlEvent], columns_of: ColumnsOf
) -> tuple[Evidence, dict[Position, Gap]]:
    """Collects the rows whose position leaves their segment open, and decides by their columns.

    Returns also a gap for each statement whose order against a row remains unknown. `columns_of` returns the columns of a
    table before these statements. Without TSOs this reads `changes`, which should be cached.
    """
    if all(event.exact_ts for event in events):
        return (), {}
    tables = _events_by_table(events)
    image = F.map_keys(F.coalesce("after", "before"))
    rows = (
        _with_segment_range(changes, tables)
        .where("high > low")
        .groupBy("database", "table", "low", "high", *BATCH_POSITION, image.alias("columns"))
        .count()
        .collect()
    )
    names = {TableName(row["database"], row["table"]) for row in rows}
    finders = {name: SegmentFinder(name, tables[name], columns_of(name)) for name in names}
    segments: dict[tuple[BatchPosition, int], int] = {}
    unordered: dict[Position, list[tuple[BatchPosition, int]]] = defaultdict(list)
    for row in rows:
        name, message = TableName(row["database"], row["table"]), tuple(row[column] for column in BATCH_POSITION)
        segment, doubt = finders[name].locate(row["low"], row["high"], row["columns"])
        segments[message, row["low"]] = segment
        if doubt is not None:
            unordered[tables[name][doubt].position].append((message, row["count"]))
    evidence = tuple((*place, segment) for place, segment in sorted(segments.items()))
    return evidence, {statement: _gap(statement, found) for statement, found in sorted(unordered.items())}


def _gap(statement: Position, rows: Sequence[tuple[BatchPosition, int]]) -> Gap:
    """The gap of rows whose order against the statement is unknown: (position, number of row changes)."""
    first = Position(*min(rows)[0][1:])
    message = (
        f"{sum(count for _, count in rows)} row change(s), the first at {first}, have the same time as a statement in "
        "another partition; the messages do not show which came first"
    )
    return statement_gap(GapKind.UNSURE_ORDER, message, statement)


# ---- positions


def _events_by_table(events: Iterable[DdlEvent]) -> dict[TableName, list[DdlEvent]]:
    found: dict[TableName, list[DdlEvent]] = defaultdict(list)
    for event in events:
        for name in event.names():
            found[name].append(event)
    return found


def _with_segment_range(changes: DataFrame, tables: Mapping[TableName, Sequence[DdlEvent]]) -> DataFrame:
    """Adds `low` and `high`: the first and the last segment in which a row can lie by its position."""
    if not tables:
        return changes.withColumns({"low": F.lit(0), "high": F.lit(0)})
    bounds = [(name.database, name.table, [_bound(event) for event in events]) for name, events in tables.items()]
    small = small_frame(changes.sparkSession, bounds, f"`database` STRING, `table` STRING, bounds {_BOUNDS}")
    placed = changes.join(F.broadcast(small), ["database", "table"], "left")
    placed = placed.withColumn("lies_after", F.expr(f"transform(bounds, bound -> {_LIES_AFTER})"))
    placed = placed.withColumn("low", F.expr(_LOW))
    high = F.when(F.col("bounds").isNull(), F.lit(0)).otherwise(F.expr(_HIGH))
    return placed.withColumn("high", high).drop("bounds", "lies_after")


def _bound(event: DdlEvent) -> tuple[object, ...]:
    at = event.at if dialect_has_trait(event.dialect, Trait.IN_LOG_ORDER) else event.commit_ts
    return (at, *event.position, event.ts, event.message_id)


# ---- columns


class SegmentFinder:
    """Locates rows of one table among the statements about it (`events`, in order). `columns`: those before them, in lower
    case."""

    def __init__(self, name: TableName, events: Sequence[DdlEvent], columns: frozenset[str] | None) -> None:
        self._columns = [columns]
        self._matters: list[bool] = []
        """Of each statement: whether it matters on which side of it a row lies, if the row fits both sides."""
        for event in events:
            missing = columns == NO_TABLE
            self._matters.append(any(_change_matters(change, name, missing) for change in event.changes))
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
        doubtful = next((at for at in range(first, last) if self._matters[at]), None)
        return (last, None) if doubtful is None else (first, doubtful)


def _columns_after(columns: frozenset[str] | None, change: SchemaChange, name: TableName) -> frozenset[str] | None:
    names = change.names()
    if isinstance(change, CreateTable) and change.name == name:
        is_kept = change.if_not_exists and columns != NO_TABLE
        return columns if is_kept else frozenset(column.name.lower() for column in change.schema.columns)
    if name in (*names.added, *names.recovered):
        return None
    if name in names.removed:
        return NO_TABLE
    if not (isinstance(change, AlterTable) and change.name == name and columns):
        return columns
    added, dropped = set(), set()
    for clause in change.clauses:
        match clause:
            case AddColumn():
                added.add(clause.column.name)
            case DropColumn():
                dropped.add(clause.name)
            case ChangeColumn():
                added.add(clause.column.name)
                dropped.add(clause.name)
            case RenameColumn():
                added.add(clause.new_name)
                dropped.add(clause.name)
    return (columns - {name.lower() for name in dropped}) | {name.lower() for name in added}


def _change_matters(change: SchemaChange, name: TableName, missing: bool) -> bool:
    """Whether the order of the statement and a row that fits both sides matters. `missing`: no table exists, so CREATE TABLE
    IF NOT EXISTS creates one."""
    if name not in change.names().touched:
        return False
    if isinstance(change, OfSourceTable):
        change = change.change
    if isinstance(change, AlterTable):
        return any(map(_clause_matters, change.clauses))
    if isinstance(change, (CreateTable, CreateTableLike)):
        return missing or not change.if_not_exists
    return True


def _clause_matters(clause: Clause) -> bool:
    """As `_change_matters`, for a clause of ALTER TABLE.

    ADD and DROP of a column do not matter: a row that fits both sides is the same on both. Nor does another type, except
    for the numbers of ENUM and SET, which mean nothing without the labels.
    """
    if isinstance(clause, ChangeColumn):
        return clause.name.lower() != clause.column.name.lower() or clause.column.type.base in ("enum", "set")
    return isinstance(clause, (RenameTo, RenameColumn, PartitionRowsClause))
