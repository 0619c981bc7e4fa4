"""The source `kafka`: topics of a broker, read by Spark from explicit offset to explicit offset, one batch after another.

Each batch is one append to `raw_topic_snapshot`, straight from Kafka; its note has the offset at which every partition goes
on. Kafka's own consumer groups play no part.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdc_pipeline.errors import SourceError
from cdc_pipeline.sources.intake import OffsetRange
from cdc_pipeline.sources.kafka.broker import Broker
from cdc_pipeline.sources.kafka.positions import Positions, by_topic
from cdc_pipeline.sources.kafka.raw_topics import RawTopics
from cdc_pipeline.sources.kafka.reading_plan import batches, reading_plan
from cdc_pipeline.sources.raw_batches import newest_batch
from cdc_pipeline.sources.source import Intake, News, NoNews, digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.sources.kafka.broker import OfferedTopic
    from cdc_pipeline.sources.kafka.client_settings import ClientSettings
    from cdc_pipeline.sources.kafka.positions import Place
    from cdc_pipeline.sources.kafka.reading_plan import ReadingPlan, Stretch
    from cdc_pipeline.sources.kafka.topic_selection import Selection
    from cdc_pipeline.sources.source import RunContext

MOST_RECORDS = 500_000
"""Records of a batch where the pipeline's file says nothing: some 300 MB, which any driver holds."""


@dataclass(frozen=True)
class KafkaTopics:
    """Topics of one broker. `publish_group` is the consumer group whose offsets are set after each run, for dashboards."""

    client: ClientSettings
    selection: Selection
    max_records_per_batch: int = MOST_RECORDS
    publish_group: str | None = None

    @property
    def place(self) -> str:
        return f"the Kafka broker {self.client.bootstrap_servers}"

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({"kafka"})

    @property
    def secrets(self) -> tuple[str, ...]:
        return self.client.secrets

    def take_in(
        self,
        spark: SparkSession,
        paths: LakePaths,
        run: RunContext,
        until: Mapping[str, Mapping[str, int]] | None = None,
    ) -> Intake:
        paths.require_writable(spark)
        broker = Broker(self.client)
        raw = RawTopics(spark, paths, self.client, run, self.selection.ended_in_lake)
        newest = newest_batch(
            spark, paths
        )  # before the positions: a batch that comes between is then never written twice
        known = raw.positions(exists=newest > 0)
        plan = self._plan(broker, known, until)
        if known is None and not plan.stretches:
            raise SourceError(f"{self.place} has no topic yet that matches source.topic_pattern {self._pattern!r}")
        for topic, partition, first, end in plan.lost:
            run.report(f"topic {topic}, partition {partition}: offsets {first} to {end - 1} are given up")
        # the first batch is made even of nothing, so that the lake's tables are there; what is given up is told by a batch
        todo = list(batches(plan, self.max_records_per_batch)) or ([()] if newest == 0 or plan.lost else [])
        if plan.changed and not todo:
            raw.keep(plan.positions)
        positions, done, started = plan.positions, 0, time.monotonic()
        for number, batch in enumerate(todo, newest + 1):
            positions = positions.moved({stretch.place: stretch.end for stretch in batch}, {})
            raw.append(number, batch, positions, plan.lost if number == newest + 1 else ())
            done += sum(stretch.offsets for stretch in batch)
            if len(todo) > 1:
                spent = time.monotonic() - started
                run.report(f"batch {number}: {done} of {plan.offsets} offsets read after {spent:.0f} s")
        if self.publish_group is not None:
            broker.publish(self.publish_group, self._of_broker(positions))
        numbers = tuple(range(newest + 1, newest + 1 + len(todo)))
        ranges = tuple(_range(stretch) for stretch in plan.stretches if stretch.offsets)
        return Intake(numbers, (), ranges, lost=plan.lost, positions=positions.as_note())

    def news(self, note: Mapping[str, Any] | None) -> News | NoNews:
        known = Positions.of_note(note)
        plan = self._plan(Broker(self.client), known, None)
        waiting = [stretch for stretch in plan.stretches if stretch.offsets]
        if not plan.stretches:
            return NoNews(f"{self.place} has no topic yet that the pipeline reads")
        if not waiting and not plan.changed:
            return NoNews(f"nothing new: all {len(plan.stretches)} partitions are read to their ends")
        start = by_topic({stretch.place: stretch.first for stretch in plan.stretches})
        until = by_topic({stretch.place: stretch.end for stretch in plan.stretches})
        start_id, range_id = digest(json.dumps(start)), digest(json.dumps(start), json.dumps(until))
        # where no note says how far the lake is, the run asks the lake, and decides by itself where to begin and to end
        return News(_summary(waiting), start_id, range_id, plan.offsets, {} if known is None else until)

    def _plan(
        self, broker: Broker, known: Positions | None, until: Mapping[str, Mapping[str, int]] | None
    ) -> ReadingPlan:
        chosen = self.selection
        offered = broker.topics(chosen.topics, chosen.pattern)
        self._require_topics(offered, known)
        starts = self._starts(broker, offered) if known is None else {}
        return reading_plan(chosen, known, offered, starts, until)

    @property
    def _pattern(self) -> str:
        return self.selection.pattern or ""

    def _require_topics(self, offered: Mapping[str, OfferedTopic], known: Positions | None) -> None:
        """A topic of the list that is not there, and never was: a slip of the pen, most likely."""
        read = set() if known is None else {topic for topic, _ in known.following}
        for topic in self.selection.topics:
            name = self.selection.in_lake(topic)
            if topic not in offered and name not in read and name not in self.selection.ended:
                raise SourceError(
                    f"{self.place} has no topic {topic!r}, which source.topics names; create it, or take it off the list",
                    topic=topic,
                )

    def _starts(self, broker: Broker, offered: Mapping[str, OfferedTopic]) -> dict[Place, int]:
        """Where each partition begins in a lake that has read nothing yet."""
        start = self.selection.start
        offers = {
            (name, number): found for name, topic in offered.items() for number, found in topic.partitions.items()
        }
        if start.at == "earliest":
            return {place: found.first for place, found in offers.items()}
        if start.at == "latest":
            return {place: found.end for place, found in offers.items()}
        if start.at == "time":
            at = broker.offsets_at(offers, start.time_ms)
            # nothing of that time or later is there yet: what comes next is
            return {place: offers[place].end if offset is None else offset for place, offset in at.items()}
        for topic, partition in offers.keys() - start.offsets.keys():
            raise SourceError(
                "source.start.offsets names no offset for a partition that the broker has; each needs one",
                topic=topic,
                partition=partition,
            )
        return {place: start.offsets[place] for place in offers}

    def _of_broker(self, positions: Positions) -> dict[Place, int]:
        """Positions by the broker's names."""
        names = {name: source for source, name in self.selection.made_anew.items()}
        gone = self.selection.ended_in_lake
        return {
            (names.get(topic, topic), partition): offset
            for (topic, partition), offset in positions.following.items()
            if topic not in gone
        }


def _range(stretch: Stretch) -> OffsetRange:
    """A stretch as metadata shows it. A topic of transactions, or one that was compacted, has fewer records than offsets."""
    return OffsetRange(stretch.topic, stretch.partition, stretch.first, stretch.end - 1, stretch.offsets)


def _summary(waiting: list[Stretch]) -> str:
    """One line for tags and logs: how much, and where the most of it is."""
    if not waiting:
        return "no new records; partitions that are new to the lake"
    most = sorted(waiting, key=lambda stretch: (-stretch.offsets, stretch.topic, stretch.partition))[:3]
    places = ", ".join(f"{stretch.topic}/{stretch.partition} {stretch.first}–{stretch.end - 1}" for stretch in most)
    more = f" and {len(waiting) - 3} more partitions" if len(waiting) > 3 else ""
    return f"{sum(stretch.offsets for stretch in waiting)} new offsets: {places}{more}"
