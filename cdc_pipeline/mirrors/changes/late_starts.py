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
from cdc_pipeline.mirrors.model.ddl_events import BASELINE_TOPIC, DdlEvent
from cdc_pipeline.mysql.model.schema_changes import CreateTable, CreateTableLike, TruncateTable
from cdc_pipeline.mysql.model.table import TableName

Partition = tuple[str, int]


def late_starts(lake: Lake) -> dict[Partition, int]:
    """Partition → the `at` of its oldest record, of the `partitions_without_start`."""
    late = partitions_without_start(lake)
    return {place: at for place, at in oldest_records(lake).items() if place in late} if late else {}


def partitions_without_start(lake: Lake) -> set[Partition]:
    """The partitions whose first records the lake does not have."""
    first: dict[Partition, int] = {}
    for batch in read_rows(lake, "batches", columns=["offsets"]):
        for span in batch["offsets"]:
            place = span["topic"], span["partition"]
            first[place] = min(span["first"], first.get(place, span["first"]))
    return {place for place, offset in first.items() if offset > 0}


def oldest_records(lake: Lake) -> dict[Partition, int]:
    """Partition → the `at` of its oldest row change, statement or watermark. Events of baselines do not count."""
    oldest: dict[Partition, int] = {}
    for table, column in (("change_log", "at"), ("ddl_history", "at"), ("watermarks", "watermark_ts")):
        found = lake.read(table).where(F.col(column).isNotNull()).groupBy("topic", "partition").agg(F.min(column))
        for topic, partition, at in found.collect():
            if not topic.startswith(BASELINE_TOPIC):
                oldest[topic, partition] = min(at, oldest.get((topic, partition), at))
    return oldest


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
