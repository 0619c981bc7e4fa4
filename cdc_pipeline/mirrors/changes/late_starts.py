"""Partitions that begin after a CREATE TABLE: retention has removed their older records, but not those of a quieter one.

Retention works per partition, in whole segments (retention.ms and retention.bytes of Kafka's `TopicConfig`), and Canal
sends statements to partition 0 only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import functions as F

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.lake.control_tables import read_rows
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mysql.model.schema_changes import CreateTable, CreateTableLike, TruncateTable
from cdc_pipeline.mysql.model.table import TableName

Partition = tuple[str, int]


def late_starts(lake: Lake, after: int = 0) -> dict[Partition, int]:
    """Partition → the `at` of its oldest record, of the partitions whose first records the lake does not have.

    `after`: leaves out those that begin at or before it.
    """
    first: dict[Partition, int] = {}
    for batch in read_rows(lake, "batches", columns=["offsets"]):
        for span in batch["offsets"]:
            place = span["topic"], span["partition"]
            first[place] = min(span["first"], first.get(place, span["first"]))
    if not any(first.values()):
        return {}
    columns = {"change_log": "at", "ddl_history": "at", "watermarks": "watermark_ts"}
    oldest: dict[Partition, int] = {}
    for table, column in columns.items():
        found = lake.read(table).where(F.col(column).isNotNull()).groupBy("topic", "partition").agg(F.min(column))
        for topic, partition, at in found.collect():
            oldest[topic, partition] = min(at, oldest.get((topic, partition), at))
    return {place: at for place, at in oldest.items() if first.get(place) and at > after}


def late_start_gaps(starts: Mapping[Partition, int], events: Iterable[DdlEvent]) -> list[tuple[TableName, Gap]]:
    """The gaps of the tables that statements create or empty before all partitions of their topic begin."""
    doubts: dict[TableName, Gap | None] = {}
    for event in events:
        later = [number for (topic, number), at in starts.items() if topic == event.topic and at > event.at]
        numbers = ", ".join(map(str, sorted(later)))
        detail = (
            f"partitions of its topic begin after the table ({numbers}): earlier rows may have expired in the broker"
        )
        gap = Gap(GapKind.UNSEEN_START, detail) if later else None
        for change in event.changes:
            if isinstance(change, CreateTable | CreateTableLike | TruncateTable):
                doubts[change.name] = gap
    return [(name, gap) for name, gap in doubts.items() if gap is not None]
