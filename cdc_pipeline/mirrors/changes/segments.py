"""Segments: how many of the cut's statements about its table lie before a row change.

A row with a TSO lies after a statement with a lower TSO. At the statement's own TSO it lies before it. Without TSOs:

- Within one partition Canal's messages are in binlog order, so offsets decide. `es` does not: it is when a statement began,
  and rows written during a long ALTER are logged before it.
- Between partitions `at` decides, then the offset within one partition. Between two topics of one batch of Canal nothing
  decides: with `canal.mq.dynamicTopic` a thread per topic builds the messages (canal-facts 49).

If the position does not decide, the columns of the row may (`segment_evidence`). Otherwise the table gets a gap.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, dialect_has_trait, trait_sql
from cdc_pipeline.gaps import GapKind, statement_gap
from cdc_pipeline.mirrors.changes.segment_evidence import SegmentFinder
from cdc_pipeline.mirrors.model.ddl_events import SAME_BATCH_MS
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import BATCH_POSITION, BatchPosition, Position
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from cdc_pipeline.gaps import Gap
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent

    ColumnsOf = Callable[[TableName], frozenset[str] | None]
    """Table → its columns in lower case (`segment_evidence.NO_TABLE`: there is none); None if they are unknown."""

Evidence: TypeAlias = tuple[tuple[BatchPosition, int, int], ...]
"""The segments of rows whose position leaves them open: (position of the message, first segment in which the row can lie,
segment in which it lies)."""
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
    f"CASE WHEN {_IN_LOG_ORDER} AND {_SAME_PARTITION} THEN `offset` > bound.`offset` "
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
