"""Segments: how many of the cut's statements about its table lie before a row change.

A row with a TSO lies after a statement with a lower TSO. At the statement's own TSO it lies before it. Without TSOs:

- Within one partition Canal's messages are in binlog order, so offsets decide. `es` does not: it is when a statement began,
  and rows written during a long ALTER are logged before it.
- Between partitions `at` decides, then the offset within one partition. Between two topics of one batch of Canal nothing
  decides: with `canal.mq.dynamicTopic` a thread per topic builds the messages (canal-facts 49).

If the position does not decide, the columns of the row may (`segment_evidence`). Otherwise the table gets a gap
(`UnknownOrder`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, dialect_has_trait, trait_sql
from cdc_pipeline.gaps import GapKind, statement_gap
from cdc_pipeline.mirrors.changes.segment_evidence import SegmentFinder
from cdc_pipeline.mirrors.model.ddl_events import SAME_BATCH_MS
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import BATCH_POSITION, BatchPosition
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, Row

    from cdc_pipeline.gaps import Gap
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent

    ColumnsOf = Callable[[TableName], frozenset[str] | None]
    """Table → its columns in lower case (`segment_evidence.NO_TABLE`: there is none); None if they are unknown."""

_TABLE = ("database", "table")
_BOUND = (
    "commit_ts: BIGINT, at: BIGINT, exact: BOOLEAN, dialect: STRING, topic: STRING, `partition`: INT, `offset`: BIGINT, "
    "ts: BIGINT, message_id: BIGINT"
)
_BOUNDS = f"ARRAY<STRUCT<{_BOUND}>>"
_OTHER_TOPIC_OF_BATCH = (
    f"topic <> bound.topic AND message_id = bound.message_id AND abs(ts - bound.ts) < {SAME_BATCH_MS}"
)
_SAME_PARTITION = "topic = bound.topic AND `partition` = bound.`partition`"
# Canal's clock, and the numbers of DataWorks, order what has the same time upstream
_AT = f"if({trait_sql(Trait.IN_LOG_ORDER)}, at, commit_ts)"
# whether a row lies after a statement; NULL if its position does not decide
_LIES_AFTER = (
    "CASE WHEN exact_ts OR bound.exact THEN commit_ts > bound.commit_ts "
    f"WHEN {trait_sql(Trait.IN_LOG_ORDER)} AND {_SAME_PARTITION} THEN `offset` > bound.`offset` "
    f"WHEN {trait_sql(Trait.IN_LOG_ORDER)} AND {_OTHER_TOPIC_OF_BATCH} THEN NULL "
    f"WHEN {_AT} <> bound.at THEN {_AT} > bound.at "
    f"WHEN {_SAME_PARTITION} THEN `offset` > bound.`offset` END"
)
# `lies_after` has _LIES_AFTER for each statement. The first and the last segment in which a row can lie:
_LOW = "coalesce(array_max(transform(lies_after, (after, at) -> if(after, at + 1, 0))), 0)"
_HIGH = (
    "coalesce(array_min(transform(lies_after, (after, at) -> if(NOT after AND at >= low, at, NULL))), size(lies_after))"
)


@dataclass(frozen=True)
class UnknownOrder:
    """Row changes of a table whose order against a statement is unknown."""

    name: TableName
    statement: DdlEvent
    changes: int
    """How many there are."""
    first: BatchPosition
    """The position of the first one."""

    @property
    def gap(self) -> Gap:
        """The gap that the table gets."""
        _, topic, partition, offset = self.first
        message = (
            f"{self.changes} row change(s), the first at {topic}/{partition}@{offset}, have the same time as a statement in "
            "another partition; the messages do not show which came first"
        )
        return statement_gap(GapKind.UNSURE_ORDER, message, self.statement.position)


@dataclass(frozen=True)
class Evidence:
    """The segments of rows whose position leaves them open."""

    segments: tuple[tuple[BatchPosition, int, int], ...] = ()
    """(position of the message, first segment in which the row can lie, segment in which it lies)"""


NO_EVIDENCE = Evidence()


def with_segments(changes: DataFrame, events: Iterable[DdlEvent], evidence: Evidence = NO_EVIDENCE) -> DataFrame:
    """Adds `segment`: how many statements about its table lie before a row, by its position or by the evidence."""
    placed = _with_segment_range(changes, _events_by_table(events))
    if not evidence.segments:
        return placed.withColumn("segment", F.col("low")).drop("low", "high")
    small = small_frame(
        changes.sparkSession,
        [(*message, low, segment) for message, low, segment in evidence.segments],
        "batch_id BIGINT, topic STRING, `partition` INT, `offset` BIGINT, low INT, evident INT",
    )
    found = placed.join(F.broadcast(small), [*BATCH_POSITION, "low"], "left")
    return found.withColumn("segment", F.coalesce("evident", "low")).drop("low", "high", "evident")


def find_evidence(
    changes: DataFrame, events: Sequence[DdlEvent], columns_of: ColumnsOf
) -> tuple[Evidence, tuple[UnknownOrder, ...]]:
    """Collects the rows whose position leaves their segment open, and decides by their columns.

    `columns_of` returns those of a table before these statements. Without TSOs it reads `changes`, which should be cached.
    """
    if all(event.exact_ts for event in events):
        return NO_EVIDENCE, ()
    tables = _events_by_table(events)
    image = F.map_keys(F.coalesce("after", "before"))
    rows = (
        _with_segment_range(changes, tables)
        .where("high > low")
        .groupBy(*_TABLE, "low", "high", *BATCH_POSITION, image.alias("columns"))
        .count()
        .collect()
    )
    return _decide(rows, tables, columns_of) if rows else (NO_EVIDENCE, ())


def _decide(
    rows: list[Row], tables: Mapping[tuple[str, ...], list[DdlEvent]], columns_of: ColumnsOf
) -> tuple[Evidence, tuple[UnknownOrder, ...]]:
    finders = {
        name: SegmentFinder(TableName(*name), tables[name], columns_of(TableName(*name)))
        for name in {(row["database"], row["table"]) for row in rows}
    }
    segments: dict[tuple[BatchPosition, int], int] = {}
    doubtful: dict[tuple[tuple[str, str], int], list[tuple[BatchPosition, int]]] = defaultdict(list)
    for row in rows:
        name, message = (row["database"], row["table"]), _message(row)
        segment, doubt = finders[name].locate(row["low"], row["high"], row["columns"])
        segments[message, row["low"]] = segment
        if doubt is not None:
            doubtful[name, doubt].append((message, row["count"]))
    doubts = tuple(
        UnknownOrder(
            TableName(*name),
            tables[name][at],
            sum(count for _, count in messages),
            min(message for message, _ in messages),
        )
        for (name, at), messages in sorted(doubtful.items())
    )
    return Evidence(tuple((*place, segment) for place, segment in sorted(segments.items()))), doubts


def _message(row: Row) -> BatchPosition:
    return (row["batch_id"], row["topic"], row["partition"], row["offset"])


# ---- positions


def _events_by_table(events: Iterable[DdlEvent]) -> dict[tuple[str, ...], list[DdlEvent]]:
    found: dict[tuple[str, ...], list[DdlEvent]] = defaultdict(list)
    for event in events:
        for name in event.names():
            found[name.database, name.table].append(event)
    return found


def _with_segment_range(changes: DataFrame, tables: Mapping[tuple[str, ...], list[DdlEvent]]) -> DataFrame:
    """Adds `low` and `high`: the first and the last segment in which a row can lie by its position."""
    bounds = {name: [_bound(event) for event in events] for name, events in tables.items()}
    placed = _join_bounds(changes, bounds)
    if all(event.exact_ts for events in tables.values() for event in events):
        low = F.expr("IF(bounds IS NULL, 0, size(filter(bounds, bound -> commit_ts > bound.commit_ts)))")
        return placed.withColumns({"low": low, "high": low}).drop("bounds")
    lies_after = F.expr(f"transform(bounds, bound -> {_LIES_AFTER})")
    placed = placed.withColumn("lies_after", lies_after).withColumn("low", F.expr(_LOW))
    high = F.when(F.col("bounds").isNull(), F.lit(0)).otherwise(F.expr(_HIGH))
    return placed.withColumn("high", high).drop("bounds", "lies_after")


def _bound(event: DdlEvent) -> tuple[object, ...]:
    at = event.at if dialect_has_trait(event.dialect, Trait.IN_LOG_ORDER) else event.commit_ts
    return (event.commit_ts, at, event.exact_ts, event.dialect, *event.position, event.ts, event.message_id)


def _join_bounds(changes: DataFrame, bounds: Mapping[tuple[str, ...], list[tuple[object, ...]]]) -> DataFrame:
    """Adds `bounds`: the position of each statement about the row's table; NULL if there is none."""
    if not bounds:
        return changes.withColumn("bounds", F.lit(None).cast(_BOUNDS))
    names = "".join(f"`{column}` STRING, " for column in _TABLE)
    rows = [(*name, found) for name, found in bounds.items()]
    small = small_frame(changes.sparkSession, rows, f"{names}bounds {_BOUNDS}")
    return changes.join(F.broadcast(small), list(_TABLE), "left")
