"""Plans the offsets that a run reads, and splits them into batches. Plain values, without broker and Spark.

Fails if the lake cannot continue: expired offsets, or a topic that was deleted or recreated. The error names topic,
partition, expected and actual offset, and the setting with which to continue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from cdc_pipeline.errors import SourceError
from cdc_pipeline.sources.kafka.positions import Positions, TopicPartition, TopicSelection
from cdc_pipeline.sources.source import OpenTransaction, PartitionLag

if TYPE_CHECKING:  # it needs an extra
    from cdc_pipeline.sources.kafka.broker import BrokerPartition, BrokerTopic

LostOffsets: TypeAlias = tuple[str, int, int, int]
"""Topic in the lake, partition, first offset, and end, which is exclusive.

With `first` = `end` all later offsets of a topic that was deleted: how many records it had there is not known.
"""


@dataclass(frozen=True)
class PlannedRange:
    """Offsets of one partition to read."""

    topic: str
    """Name in the lake."""
    source: str
    """Name on the broker."""
    partition: int
    first: int
    end: int
    """Exclusive."""

    @property
    def topic_partition(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def offsets(self) -> int:
        return self.end - self.first


@dataclass(frozen=True)
class ReadingPlan:
    """The offsets that a run reads."""

    positions: Positions
    """Before anything is read; includes new partitions."""
    ranges: tuple[PlannedRange, ...]
    """One per partition, also if it has no new offsets."""
    lost: tuple[LostOffsets, ...]
    """Skipped offsets, which the broker no longer has."""
    changed: bool
    """Whether `positions` differ from the lake's."""
    open_transactions: tuple[OpenTransaction, ...] = ()

    @property
    def offsets(self) -> int:
        return sum(planned.offsets for planned in self.ranges)

    @property
    def lags(self) -> tuple[PartitionLag, ...]:
        return tuple(PartitionLag(one.source, one.partition, one.end, one.offsets) for one in self.ranges)


def reading_plan(
    selection: TopicSelection,
    known: Positions | None,
    topics: Mapping[str, BrokerTopic],
    starts: Mapping[TopicPartition, int],
    until: Mapping[str, Mapping[str, int]] | None = None,
) -> ReadingPlan:
    """The offsets to read.

    `known`: the lake's positions; None for an empty lake. `topics`: by the broker's names. `starts`: where each partition of
    an empty lake begins, by the broker's names. `until`: exclusive end offsets by the lake's names; other partitions are not
    read. Raises SourceError if the lake cannot continue.
    """
    seen = known or Positions()
    read = seen.by_topic()
    _require_read_topics(selection, seen, {selection.lake_name(source) for source in topics})
    next_offsets: dict[TopicPartition, int] = {}
    lost: list[LostOffsets] = []
    ranges, held = [], []
    for source, topic in sorted(topics.items()):
        name = selection.lake_name(source)
        if name in selection.ended:
            continue
        _require_same_topic(name, source, seen, topic)
        replaced = {} if name in read else _replaced_topic(name, source, read)
        lost += replaced
        for number, partition in sorted(topic.partitions.items()):
            expected = seen.next_offsets.get((name, number))
            if expected is None:
                # later partitions are read from their first record: `start` applies to an empty lake only
                first = partition.first if known is not None else starts[source, number]
                _require_available(name, number, first, partition)
                # expired since the lake has read the topic; what a topic that is new to the lake had is not known
                if first and (replaced or name in read):
                    lost.append((name, number, 0, first))
            elif partition.first <= expected <= partition.high_watermark:
                first = expected
            else:
                first = _resume_offset(selection, (name, number), expected, partition)
                lost.append((name, number, expected, first))
            next_offsets[name, number] = first
            end = partition.end if until is None else until.get(name, {}).get(str(number), first)
            # `first` is above the end if the lake was written with read_uncommitted before
            ranges.append(PlannedRange(name, source, number, first, max(first, min(end, partition.end))))
            if partition.end < partition.high_watermark:
                held.append(OpenTransaction(name, number, partition.end, partition.high_watermark))
    ids = {selection.lake_name(source): topic.topic_id for source, topic in topics.items()}
    read_ids = {name: topic_id for name, topic_id in ids.items() if name not in selection.ended}
    positions = seen.updated(next_offsets, read_ids)
    return ReadingPlan(positions, tuple(ranges), tuple(lost), positions != known, tuple(held))


def split_plan(plan: ReadingPlan, max_offsets: int) -> Iterator[tuple[PlannedRange, ...]]:
    """The ranges split into batches of at most `max_offsets` offsets.

    Each batch reads from each partition in proportion to its backlog, so that the watermarks of all partitions advance
    together.
    """
    remaining = [planned for planned in plan.ranges if planned.offsets]
    while remaining:
        total = sum(planned.offsets for planned in remaining)
        batch, rest, room = [], [], max_offsets
        for planned in remaining:
            share = planned.offsets if total <= max_offsets else max(1, planned.offsets * max_offsets // total)
            count = min(share, planned.offsets, room)
            room -= count
            middle = planned.first + count
            if count:
                batch.append(replace(planned, end=middle))
            if middle < planned.end:
                rest.append(replace(planned, first=middle))
        yield tuple(batch)
        # partitions that did not fit into this batch come first in the next one
        in_batch = {planned.topic_partition for planned in batch}
        remaining = sorted(rest, key=lambda planned: planned.topic_partition in in_batch)


def _require_read_topics(selection: TopicSelection, seen: Positions, on_broker: Set[str]) -> None:
    """Requires that every topic that was read exists, or is in `ended` or recreated. `on_broker`: names in the lake."""
    read = seen.by_topic()
    for name in sorted(read.keys() - on_broker - selection.ended_in_lake):
        first, offset = min(read[name].items())
        raise SourceError(
            f"the lake has read topic {name!r} (partition {first} up to offset {offset}), but the broker no longer has "
            "it among the topics of the pipeline. If it was deleted or is no longer needed, set "
            f"source.ended: [{name}] to continue with the other topics",
            topic=name,
            partition=first,
            offset=offset,
        )


def _require_same_topic(name: str, source: str, seen: Positions, topic: BrokerTopic) -> None:
    known = seen.topic_ids.get(name)
    if known is None or known == topic.topic_id:
        return
    offsets = seen.by_topic()[name]
    number = min(offsets)
    partition = topic.partitions.get(number)
    found = (
        "has no such partition" if partition is None else f"has offsets {partition.first} to {partition.high_watermark}"
    )
    raise SourceError(
        f"topic {source!r} was deleted and recreated: expected offset {offsets[number]} of the topic with id {known}, but "
        f"the topic with id {topic.topic_id} {found}. Its offsets start again, so its records need another name in the "
        f"lake: set source.made_anew: {{{source}: {_next_name(name)}}} to read the new topic from its start",
        topic=source,
        partition=number,
        offset=offsets[number],
    )


def _replaced_topic(name: str, source: str, read: Mapping[str, Mapping[int, int]]) -> list[LostOffsets]:
    """Where the lake's reading of the topic ended that a recreated one replaces; empty for any other topic."""
    former = replaced = source
    while former != name and former in read:
        replaced, former = former, _next_name(former)
    ends = {} if former == source else read[replaced]
    return [(replaced, number, end, end) for number, end in sorted(ends.items())]


def _next_name(name: str) -> str:
    """`orders` → `orders@2`, `orders@2` → `orders@3`."""
    head, mark, number = name.rpartition("@")
    return f"{head}@{int(number) + 1}" if mark and number.isdigit() else f"{name}@2"


def _require_available(name: str, number: int, first: int, partition: BrokerPartition) -> None:
    if partition.first <= first <= partition.high_watermark:
        return
    raise SourceError(
        f"source.start names offset {first}, but the broker has offsets {partition.first} to {partition.high_watermark}",
        topic=name,
        partition=number,
        offset=first,
    )


def _resume_offset(
    selection: TopicSelection, topic_partition: TopicPartition, expected: int, found: BrokerPartition
) -> int:
    """The offset in `resume_at` for a partition with expired records. Raises SourceError if there is no valid one."""
    (topic, partition), first, end = topic_partition, found.first, found.high_watermark
    if expected > end:
        raise SourceError(
            f"expected to continue at offset {expected}, but the broker ends at {end}: it has lost records that the lake "
            "has, or the topic was recreated. New records would reuse offsets of the lake's records, so they need another "
            f"name in the lake: set source.made_anew: {{{selection.broker_name(topic)}: {_next_name(topic)}}} to read the "
            "topic from its start",
            topic=topic,
            partition=partition,
            offset=expected,
        )
    chosen = selection.resume_at.get(topic_partition)
    if chosen is not None and first <= chosen <= end:
        return chosen
    current = "" if chosen is None else f" (it is {chosen} now, but the broker has offsets {first} to {end})"
    raise SourceError(
        f"expected to continue at offset {expected}, but the broker begins at {first}: the {first - expected} offsets "
        f"before it have expired. To continue without them, set source.resume_at: {{{topic}: {{{partition}: {first}}}}}"
        f"{current}. The check no_lost_offsets then lists the skipped offsets",
        topic=topic,
        partition=partition,
        offset=expected,
    )
