"""Which segment of its table a row change lies in: how many of the cut's statements lie before it.

A row with a TSO lies after a statement where its TSO is greater; at the statement's own TSO it lies before it. Without
TSOs the stream tells by what it has:

- In one partition Canal's messages are in the order of the binlog, whatever their `es` says: that is when a statement
  began, and rows that are written while a long ALTER runs are logged before it.
- Between partitions Canal's clock orders (`ts`: messages are built one after the other), then the number of its batch, of
  which all messages are sent before those of the next one (canal-facts 3, 4, 47, 49).
- In other dialects `commit_ts` orders, and at one `commit_ts` the offset in one partition.

What is open after that is told by the columns and types that a row carries (`statement_evidence`). What is still open is a
doubt, which the table is marked with.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, trait_sql
from cdc_pipeline.gaps import GapKind, of_statement
from cdc_pipeline.mirrors.changes.segment_evidence import SegmentFinder
from cdc_pipeline.mirrors.model.shards import ShardName, source_columns
from cdc_pipeline.mysql.model.schema_changes import DropTable, OfShard, TruncateTable
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, Row

    from cdc_pipeline.dialects.message_types import MessageTypes
    from cdc_pipeline.gaps import Gap
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.sources.places import Place

    TypesOf = Callable[[Mapping[Place, str]], Mapping[Place, MessageTypes]]
    """The types that the messages at these places name, each of its dialect."""

_TABLE = ("database", "table")
MESSAGE = ("batch_id", "topic", "partition", "offset")
_BOUND = (
    "commit_ts: BIGINT, exact: BOOLEAN, dialect: STRING, topic: STRING, `partition`: INT, `offset`: BIGINT, ts: BIGINT, "
    "message_id: BIGINT"
)
_BOUNDS = f"ARRAY<STRUCT<{_BOUND}>>"
_SAME_PARTITION = "topic = bound.topic AND `partition` = bound.`partition`"
# whether a row lies after a statement; null where its place in the stream does not tell
_LIES_AFTER = (
    "CASE WHEN exact_ts OR bound.exact THEN commit_ts > bound.commit_ts "
    f"WHEN {trait_sql(Trait.IN_LOG_ORDER)} AND {trait_sql(Trait.IN_LOG_ORDER, 'bound.dialect')} THEN "
    f"CASE WHEN {_SAME_PARTITION} THEN `offset` > bound.`offset` "
    "WHEN ts <> bound.ts THEN ts > bound.ts WHEN message_id <> bound.message_id THEN message_id > bound.message_id END "
    "WHEN commit_ts <> bound.commit_ts THEN commit_ts > bound.commit_ts "
    f"WHEN {_SAME_PARTITION} THEN `offset` > bound.`offset` END"
)
# the number of the last statement that a row surely lies after, and how many it may lie after
_LOW = "coalesce(array_max(transform(told, (after, at) -> if(after, at + 1, 0))), 0)"
_HIGH = "coalesce(array_min(transform(told, (after, at) -> if(NOT after AND at >= low, at, NULL))), size(told))"


@dataclass(frozen=True)
class Doubt:
    """Row changes of a table of which nothing tells on which side of a statement they lie: how many, and where the first
    one is."""

    name: TableName
    statement: DdlEvent
    changes: int
    first: Place

    @property
    def gap(self) -> Gap:
        """What the table is marked with."""
        _, topic, partition, offset = self.first
        words = (
            f"{self.changes} row change(s), the first at {topic}/{partition}@{offset}, came in one moment with a statement "
            f"of another partition, and nothing tells which was first (commit_ts {self.statement.commit_ts})"
        )
        return of_statement(GapKind.UNSURE_ORDER, words, words, self.statement.sql)


@dataclass(frozen=True)
class Evidence:
    """Where rows lie that their place in the stream leaves open: by message, and by the first segment in which they can lie,
    the segment in which they do."""

    segments: tuple[tuple[Place, int, int], ...] = ()


NO_EVIDENCE = Evidence()


def with_segments(changes: DataFrame, events: Iterable[DdlEvent], evidence: Evidence = NO_EVIDENCE) -> DataFrame:
    """`changes` with `segment`: how many of its table's statements of this cut lie before a row, surely or by the
    evidence."""
    placed = _with_places(changes, _events_by_table(events))
    if not evidence.segments:
        return placed.withColumn("segment", F.col("low")).drop("low", "high")
    small = small_frame(
        changes.sparkSession,
        [(*message, low, segment) for message, low, segment in evidence.segments],
        "batch_id BIGINT, topic STRING, `partition` INT, `offset` BIGINT, low INT, evident INT",
    )
    told = placed.join(F.broadcast(small), [*MESSAGE, "low"], "left")
    return told.withColumn("segment", F.coalesce("evident", "low")).drop("low", "high", "evident")


def found_evidence(
    changes: DataFrame, events: Sequence[DdlEvent], known: Callable[[TableName], bool], types_of: TypesOf
) -> tuple[Evidence, tuple[Doubt, ...]]:
    """What rows carry that their place leaves open, and what is in doubt still. `known`: whether a table was there before
    these statements. `changes` should be kept in memory: where there are statements without TSOs they are looked at."""
    if all(event.exact_ts for event in events):
        return NO_EVIDENCE, ()
    tables = _events_by_table(events)
    image = F.map_keys(F.coalesce("after", "before"))
    rows = (
        _with_places(changes, tables)
        .where("high > low")
        .groupBy(*_TABLE, "low", "high", *MESSAGE, "dialect", image.alias("columns"))
        .count()
        .collect()
    )
    return _evident(rows, tables, known, types_of) if rows else (NO_EVIDENCE, ())


def _evident(
    rows: list[Row],
    tables: Mapping[tuple[str, ...], list[DdlEvent]],
    known: Callable[[TableName], bool],
    types_of: TypesOf,
) -> tuple[Evidence, tuple[Doubt, ...]]:
    types = types_of({_message(row): row["dialect"] for row in rows})
    finders = {
        name: SegmentFinder(TableName(*name), tables[name], known=known(TableName(*name)))
        for name in {(row["database"], row["table"]) for row in rows}
    }
    found: dict[tuple[Place, int], int] = {}
    doubtful: dict[tuple[tuple[str, str], int], list[tuple[Place, int]]] = defaultdict(list)
    for row in rows:
        name, message = (row["database"], row["table"]), _message(row)
        words = types[message].mysql_types if message in types else {}
        segment, doubt = finders[name].found(row["low"], row["high"], row["columns"], words)
        found[message, row["low"]] = segment
        if doubt is not None:
            doubtful[name, doubt].append((message, row["count"]))
    doubts = tuple(
        Doubt(
            TableName(*name), tables[name][at], sum(count for _, count in messages), min(place for place, _ in messages)
        )
        for (name, at), messages in sorted(doubtful.items())
    )
    return Evidence(tuple((*place, segment) for place, segment in sorted(found.items()))), doubts


def _message(row: Row) -> Place:
    return (row["batch_id"], row["topic"], row["partition"], row["offset"])


def not_emptied(changes: DataFrame, events: Sequence[DdlEvent]) -> DataFrame:
    """The changes that lie after all of these statements of their table in a merged mirror: those before a TRUNCATE or DROP
    TABLE that an earlier cut has carried out are superseded by it."""
    source = source_columns(changes)
    bounds = _bounds((event, name) for event in events for name in _emptied_shards(event))
    if not source or not bounds:
        return changes
    after_all = F.expr(f"bounds IS NULL OR forall(bounds, bound -> coalesce({_LIES_AFTER}, false))")
    return _with_bounds(changes, bounds, (*_TABLE, *source)).where(after_all).drop("bounds")


def _emptied_shards(event: DdlEvent) -> list[ShardName]:
    return [
        ShardName(change.name, change.shard)
        for change in event.changes
        if isinstance(change, OfShard) and isinstance(change.change, (TruncateTable, DropTable))
    ]


# ---- places


def _events_by_table(events: Iterable[DdlEvent]) -> dict[tuple[str, ...], list[DdlEvent]]:
    found: dict[tuple[str, ...], list[DdlEvent]] = defaultdict(list)
    for event in events:
        for name in event.names():
            found[name.database, name.table].append(event)
    return found


def _with_places(changes: DataFrame, tables: Mapping[tuple[str, ...], list[DdlEvent]]) -> DataFrame:
    """`changes` with `low` and `high`: the first and the last segment in which a row can lie by its place in the stream."""
    bounds = {name: [_bound(event) for event in events] for name, events in tables.items()}
    placed = _with_bounds(changes, bounds, _TABLE)
    if all(event.exact_ts for events in tables.values() for event in events):
        low = F.expr("IF(bounds IS NULL, 0, size(filter(bounds, bound -> commit_ts > bound.commit_ts)))")
        return placed.withColumns({"low": low, "high": low}).drop("bounds")
    told = F.expr(f"transform(bounds, bound -> {_LIES_AFTER})")
    placed = placed.withColumn("told", told).withColumn("low", F.expr(_LOW))
    high = F.when(F.col("bounds").isNull(), F.lit(0)).otherwise(F.expr(_HIGH))
    return placed.withColumn("high", high).drop("bounds", "told")


def _bounds(
    events: Iterable[tuple[DdlEvent, TableName | ShardName]],
) -> dict[tuple[str, ...], list[tuple[object, ...]]]:
    found: dict[tuple[str, ...], list[tuple[object, ...]]] = defaultdict(list)
    for event, name in events:
        parts = (name.mirror, name.source) if isinstance(name, ShardName) else (name,)
        found[tuple(text for part in parts for text in (part.database, part.table))].append(_bound(event))
    return found


def _bound(event: DdlEvent) -> tuple[object, ...]:
    return (event.commit_ts, event.exact_ts, event.dialect, *event.position, event.ts, event.message_id)


def _with_bounds(
    changes: DataFrame, bounds: Mapping[tuple[str, ...], list[tuple[object, ...]]], columns: tuple[str, ...]
) -> DataFrame:
    """`changes` with `bounds`: where each of its table's events lies; null where it has none."""
    if not bounds:
        return changes.withColumn("bounds", F.lit(None).cast(_BOUNDS))
    names = "".join(f"`{column}` STRING, " for column in columns)
    rows = [(*name, found) for name, found in bounds.items()]
    small = small_frame(changes.sparkSession, rows, f"{names}bounds {_BOUNDS}")
    return changes.join(F.broadcast(small), list(columns), "left")
