"""The source `kafka`: Spark reads topics of a broker between explicit offsets, in batches.

Each batch is one append to `raw_topic_snapshot`, whose note has the next offset of every partition. No offsets of consumer
groups are read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from cdc_pipeline.errors import SourceError, TransientError
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.positions import offsets_text
from cdc_pipeline.sources.intake import OffsetSpan
from cdc_pipeline.sources.kafka.client_settings import ClientSettings
from cdc_pipeline.sources.kafka.positions import Positions, TopicPartition, TopicSelection, by_topic
from cdc_pipeline.sources.kafka.raw_topics import MOST_BY_CLIENT, AppendedBatch, RawTopics, TimestampOverflowError
from cdc_pipeline.sources.kafka.reading_plan import PlannedRange, ReadingPlan, reading_plan, split_plan
from cdc_pipeline.sources.raw_batches import newest_batch
from cdc_pipeline.sources.source import Intake, NewRecords, NoNewRecords, OpenTransaction, RunContext, Source, digest

if TYPE_CHECKING:  # it needs an extra
    from cdc_pipeline.sources.kafka.broker import Broker, BrokerTopic

OVERDUE_MS = 15 * 60 * 1000
"""The longest timeout of a transaction that brokers allow by default (`transaction.max.timeout.ms`)."""
MAX_RECORDS = 500_000
"""Default of `max_records_per_batch`: about 300 MB."""


@dataclass(frozen=True)
class KafkaTopics(Source):
    """Topics of one broker."""

    client: ClientSettings
    selection: TopicSelection
    max_records_per_batch: int = MAX_RECORDS
    publish_group: str | None = None
    """Consumer group whose offsets are set after each run, for lag dashboards."""

    @property
    def location(self) -> str:
        return f"the Kafka broker {self.client.bootstrap_servers}"

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.selection.topics)) or ("topic_pattern",)

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({"kafka"})

    @property
    def secrets(self) -> tuple[str, ...]:
        return self.client.secrets

    def ingest(self, lake: Lake, run: RunContext, until: Mapping[str, Mapping[str, int]] | None = None) -> Intake:
        lake.paths.require_writable(lake.spark)
        broker = open_broker(self.client)
        raw = RawTopics(lake, self.client, run, self.selection.ended_in_lake)
        # read before the positions, so that a batch committed in between is not written twice
        newest = newest_batch(lake)
        known = raw.positions(exists=newest > 0)
        plan = self._plan(broker, known, until)
        if known is None and not plan.ranges:
            raise SourceError(
                f"{self.location} has no topic yet that matches source.topic_pattern {self.selection.pattern!r}"
            )
        for topic, partition, first, end in plan.lost:
            run.report(f"topic {topic}, partition {partition}: skips lost offsets {offsets_text(first, end)}")
        # an empty batch creates the tables of an empty lake, and stores lost offsets
        batches = list(split_plan(plan, self.max_records_per_batch)) or ([()] if newest == 0 or plan.lost else [])
        if plan.changed and not batches:
            raw.commit_positions(plan.positions)
        positions, appended = _append_batches(raw, plan, batches, newest, broker)
        if self.publish_group is not None:
            try:
                broker.publish(self.publish_group, self._broker_offsets(positions))
            except (SourceError, TransientError) as error:  # the batches are in the lake, and dashboards can wait
                run.report(f"publish_group {self.publish_group!r}: its offsets are not set: {error}")
        ranges = tuple(
            OffsetSpan(planned.topic, planned.partition, planned.first, planned.end - 1)
            for planned in plan.ranges
            if planned.offsets
        )
        return Intake(
            tuple(appended),
            (),
            ranges,
            sum(batch.records for batch in appended.values()),
            lost=plan.lost,
            positions=positions.to_note(),
            open_transactions=self._with_age(broker, plan.open_transactions),
            reads_uncommitted=self.client.reads_uncommitted,
            notes={number: batch.note for number, batch in appended.items() if batch.note},
        )

    def newest_records(self, lake: Lake, run: RunContext) -> DataFrame | None:
        """The ten newest records of each partition as `RECORD`. Writes nothing. None without records."""
        topics = open_broker(self.client).topics(self.selection.topics, self.selection.pattern)
        batch = tuple(
            PlannedRange(name, name, number, max(found.first, found.end - 10), found.end)
            for name, topic in sorted(topics.items())
            for number, found in topic.partitions.items()
            if found.end > found.first
        )
        raw = RawTopics(lake, self.client, run, self.selection.ended_in_lake)
        ids = frozenset((name, topic.topic_id) for name, topic in topics.items())
        return raw.records(batch, ids) if batch else None

    def find_new_records(self, note: Mapping[str, Any] | None) -> NewRecords | NoNewRecords:
        """As `Source`. Offsets identify records: equal first offsets have one `start_id`, equal ranges one `range_id`."""
        known = Positions.from_note(note)
        plan = self._plan(open_broker(self.client), known, None)
        new = [planned for planned in plan.ranges if planned.offsets]
        if not plan.ranges:
            return NoNewRecords(f"{self.location} has no topic yet that the pipeline reads")
        if not new and not plan.changed:
            return NoNewRecords(f"nothing new: all {len(plan.ranges)} partitions are read to {_ends(plan)}", plan.lags)
        start = by_topic({planned.topic_partition: planned.first for planned in plan.ranges})
        until = by_topic({planned.topic_partition: planned.end for planned in plan.ranges})
        start_id, range_id = digest(json.dumps(start)), digest(json.dumps(start), json.dumps(until))
        # without positions in a note, the run takes them from the lake and reads to the current end
        topics = tuple(sorted({planned.topic for planned in new}))
        return NewRecords(
            _summary(new), start_id, range_id, plan.offsets, {} if known is None else until, topics, plan.lags
        )

    def _plan(
        self, broker: Broker, known: Positions | None, until: Mapping[str, Mapping[str, int]] | None
    ) -> ReadingPlan:
        topics = broker.topics(self.selection.topics, self.selection.pattern)
        self._require_topics(topics, known, broker)
        starts = self._starts(broker, topics) if known is None else {}
        return reading_plan(self.selection, known, topics, starts, until)

    def _require_topics(self, topics: Mapping[str, BrokerTopic], known: Positions | None, broker: Broker) -> None:
        """Raises SourceError for a topic in `source.topics` that does not exist and was never read."""
        read = set() if known is None else {topic for topic, _ in known.next_offsets}
        for topic in self.selection.topics:
            name = self.selection.lake_name(topic)
            if topic not in topics and name not in read and name not in self.selection.ended:
                similar = ", ".join(broker.similar_topics(topic))
                raise SourceError(
                    f"{self.location} has no topic {topic!r}, which source.topics names; create it or remove it from "
                    f"the list{f' (topics with a similar name: {similar})' if similar else ''}",
                    topic=topic,
                )

    def _starts(self, broker: Broker, topics: Mapping[str, BrokerTopic]) -> dict[TopicPartition, int]:
        """The first offset of each partition for an empty lake, by the broker's names."""
        start = self.selection.start
        partitions = {
            (name, number): partition
            for name, topic in topics.items()
            for number, partition in topic.partitions.items()
        }
        if start.at == "earliest":
            return {key: partition.first for key, partition in partitions.items()}
        if start.at == "latest":
            return {key: partition.end for key, partition in partitions.items()}
        if start.at == "time":
            offsets = broker.offsets_at(partitions, start.time_ms)
            # None: no record of that time or later exists yet
            return {key: partitions[key].end if offset is None else offset for key, offset in offsets.items()}
        for topic, partition in partitions.keys() - start.offsets.keys():
            raise SourceError(
                "source.start.offsets has no offset for a partition of the broker; each partition needs one",
                topic=topic,
                partition=partition,
            )
        return {key: start.offsets[key] for key in partitions}

    def _with_age(self, broker: Broker, held: tuple[OpenTransaction, ...]) -> tuple[OpenTransaction, ...]:
        """Sets `is_overdue`. A record at or before the stable offset, if the search finds one, is young enough."""
        if not held:
            return ()
        limit_ms = int(time.time() * 1000) - OVERDUE_MS
        partitions = {found: (self.selection.broker_name(found.topic), found.partition) for found in held}
        young = broker.offsets_at(partitions.values(), limit_ms, uncommitted=True)
        return tuple(
            replace(found, is_overdue=(offset := young[partition]) is None or offset > found.stable_offset)
            for found, partition in partitions.items()
        )

    def _broker_offsets(self, positions: Positions) -> dict[TopicPartition, int]:
        """Next offsets by the broker's names, without ended topics."""
        return {
            (self.selection.broker_name(topic), partition): offset
            for (topic, partition), offset in positions.next_offsets.items()
            if topic not in self.selection.ended_in_lake
        }


def _append_batches(
    raw: RawTopics, plan: ReadingPlan, batches: list[tuple[PlannedRange, ...]], newest: int, broker: Broker
) -> tuple[Positions, dict[int, AppendedBatch]]:
    """Appends the batches after the batch `newest`. Returns the positions after the last one, and each by its number.

    Halves a batch with timestamps that Spark cannot read, until it is small enough for `broker` to read it.
    """
    positions, appended, done, started = plan.positions, dict[int, AppendedBatch](), 0, time.monotonic()
    while batches:
        batch, number = batches.pop(0), newest + len(appended) + 1
        offsets, lost = sum(planned.offsets for planned in batch), () if appended else plan.lost
        after = positions.updated({planned.topic_partition: planned.end for planned in batch}, {})
        try:
            appended[number] = raw.append(number, batch, after, lost)
        except TimestampOverflowError:
            if offsets > MOST_BY_CLIENT:
                half = max(offsets // 2, MOST_BY_CLIENT)
                batches[:0] = split_plan(replace(plan, ranges=batch), half)
                continue
            appended[number] = raw.append(number, batch, after, lost, broker)
        positions, done = after, done + offsets
        if batches or len(appended) > 1:
            took = f"{time.monotonic() - started:.0f} s"
            raw.run.report(f"batch {number}: {done} of {plan.offsets} offsets read after {took}")
    return positions, appended


def open_broker(client: ClientSettings) -> Broker:
    """Raises SourceError if the extra `kafka` is not installed, or as `Broker`."""
    try:
        from cdc_pipeline.sources.kafka.broker import Broker
    except ModuleNotFoundError as error:
        if error.name != "confluent_kafka":
            raise
        raise SourceError(
            "the source kafka needs the package confluent-kafka: run pip install 'cdc_pipeline[kafka]'"
        ) from error
    return Broker(client)


def _ends(plan: ReadingPlan) -> str:
    """What a complete plan reads to, with up to three partitions that open transactions hold back."""
    held = plan.open_transactions
    if not held:
        return "their ends"
    more = f" and {len(held) - 3} more partitions" if len(held) > 3 else ""
    return f"their last stable offsets. Open transactions hold back {'; '.join(map(str, held[:3]))}{more}"


def _summary(ranges: list[PlannedRange]) -> str:
    """One line for tags and logs: the number of new offsets, and the three largest ranges."""
    if not ranges:
        return "no new records, but partitions that are new to the lake"
    largest = sorted(ranges, key=lambda planned: (-planned.offsets, planned.topic, planned.partition))[:3]
    offsets = ", ".join(f"{planned.topic}/{planned.partition} {planned.first}–{planned.end - 1}" for planned in largest)
    more = f" and {len(ranges) - 3} more partitions" if len(ranges) > 3 else ""
    return f"{sum(planned.offsets for planned in ranges)} new offsets: {offsets}{more}"
