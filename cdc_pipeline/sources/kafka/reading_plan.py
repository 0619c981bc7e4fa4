"""What is to be read: from where the lake is to where the broker is, in batches. Plain values, no broker, no Spark.

Where the lake cannot go on from where it is, this is where it stops: offsets that expired, a topic that was deleted or
made again. Each is an error that names topic, partition, expected and found offset, and what to write to go on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_pipeline.errors import SourceError
from cdc_pipeline.sources.kafka.positions import Positions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cdc_pipeline.sources.kafka.broker import OfferedTopic
    from cdc_pipeline.sources.kafka.positions import Place
    from cdc_pipeline.sources.kafka.topic_selection import Selection


@dataclass(frozen=True)
class Stretch:
    """Offsets of one partition to be read, `end` not included. `topic` is the lake's name for it, `source` the broker's."""

    topic: str
    source: str
    partition: int
    first: int
    end: int

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    @property
    def offsets(self) -> int:
        return self.end - self.first


@dataclass(frozen=True)
class ReadingPlan:
    """`positions` as they are before anything is read, with the partitions that are new; `stretches` has each partition,
    also those without news; `lost` are the offsets that the pipeline's file gives up; `changed` says that `positions` are
    not yet what the lake has."""

    positions: Positions
    stretches: tuple[Stretch, ...]
    lost: tuple[tuple[str, int, int, int], ...]
    changed: bool

    @property
    def offsets(self) -> int:
        return sum(stretch.offsets for stretch in self.stretches)


def reading_plan(
    selection: Selection,
    known: Positions | None,
    offered: Mapping[str, OfferedTopic],
    starts: Mapping[Place, int],
    until: Mapping[str, Mapping[str, int]] | None = None,
) -> ReadingPlan:
    """What to read. `known` is None where the lake has nothing yet; then `starts` says where each partition begins (by the
    broker's names). `until` limits each partition, and leaves out those that it does not name.

    Raises SourceError where the lake cannot go on.
    """
    seen = known or Positions()
    there = {selection.in_lake(source): topic for source, topic in offered.items()}
    _require_known_topics(selection, seen, there)
    following: dict[Place, int] = {}
    lost: list[tuple[str, int, int, int]] = []
    stretches = []
    for source, topic in sorted(offered.items()):
        name = selection.in_lake(source)
        if name in selection.ended:
            continue
        _require_same_topic(name, source, seen, topic)
        for partition, offers in sorted(topic.partitions.items()):
            place = (name, partition)
            expected = seen.following.get(place)
            if expected is None:
                # what appears later is new as a whole: `start` speaks of the pipeline's first run only
                first = offers.first if known is not None else starts[source, partition]
                _require_offered(name, partition, first, offers.first, offers.end)
            elif offers.first <= expected <= offers.end:
                first = expected
            else:
                first = _resumed(selection, place, expected, offers.first, offers.end)
                lost.append((name, partition, expected, first))
            following[place] = first
            end = offers.end if until is None else until.get(name, {}).get(str(partition), first)
            stretches.append(Stretch(name, source, partition, first, max(first, min(end, offers.end))))
    ids = {selection.in_lake(source): topic.topic_id for source, topic in offered.items()}
    positions = seen.moved(following, {name: found for name, found in ids.items() if name not in selection.ended})
    return ReadingPlan(positions, tuple(stretches), tuple(lost), positions != known)


def batches(plan: ReadingPlan, most: int) -> Iterator[tuple[Stretch, ...]]:
    """The stretches cut into batches of at most `most` offsets each. Each batch takes of every partition the share that it
    has of what is left, so that partitions stay abreast, as their watermarks must be for a mirror to move."""
    left = [stretch for stretch in plan.stretches if stretch.offsets]
    while left:
        total = sum(stretch.offsets for stretch in left)
        batch, rest, room = [], [], most
        for stretch in left:
            share = stretch.offsets if total <= most else max(1, stretch.offsets * most // total)
            taken = min(share, stretch.offsets, room)
            room -= taken
            middle = stretch.first + taken
            if taken:
                batch.append(Stretch(stretch.topic, stretch.source, stretch.partition, stretch.first, middle))
            if middle < stretch.end:
                rest.append(Stretch(stretch.topic, stretch.source, stretch.partition, middle, stretch.end))
        yield tuple(batch)
        # those that came too late for this batch are the first of the next
        taken_now = {stretch.place for stretch in batch}
        left = sorted(rest, key=lambda stretch: stretch.place in taken_now)


def _require_known_topics(selection: Selection, seen: Positions, there: Mapping[str, OfferedTopic]) -> None:
    gone = {name for name, _ in seen.following} - set(there) - selection.ended_in_lake
    for name in sorted(gone):
        read = {str(partition): offset for (topic, partition), offset in seen.following.items() if topic == name}
        first = min(read, key=int)
        raise SourceError(
            f"the lake has read topic {name!r} (partition {first} up to offset {read[first]}), and the broker has no such "
            "topic among those of the pipeline any more. If it was deleted or is not wanted any more, say so in the "
            f"pipeline's file, and the others go on: source.ended: [{name}]",
            topic=name,
            partition=int(first),
            offset=read[first],
        )


def _require_same_topic(name: str, source: str, seen: Positions, topic: OfferedTopic) -> None:
    known = seen.topic_ids.get(name)
    if known is None or known == topic.topic_id:
        return
    places = {partition: offset for (known_name, partition), offset in seen.following.items() if known_name == name}
    partition = min(places)
    offers = topic.partitions.get(partition)
    found = "has no such partition" if offers is None else f"has offsets {offers.first} to {offers.end}"
    raise SourceError(
        f"topic {source!r} was deleted and made again: expected offset {places[partition]} of the topic with id {known}, "
        f"and the one with id {topic.topic_id} {found}. Its offsets begin anew, so its records need another name in the "
        f"lake: source.made_anew: {{{source}: {_another_name(name)}}} takes in the new topic from its start",
        topic=source,
        partition=partition,
        offset=places[partition],
    )


def _another_name(name: str) -> str:
    """`orders` → `orders@2`, `orders@2` → `orders@3`."""
    head, mark, number = name.rpartition("@")
    return f"{head}@{int(number) + 1}" if mark and number.isdigit() else f"{name}@2"


def _require_offered(name: str, partition: int, first: int, offered_first: int, offered_end: int) -> None:
    if offered_first <= first <= offered_end:
        return
    raise SourceError(
        f"source.start names offset {first}, and the broker has offsets {offered_first} to {offered_end}",
        topic=name,
        partition=partition,
        offset=first,
    )


def _resumed(selection: Selection, place: Place, expected: int, first: int, end: int) -> int:
    """The offset at which the pipeline's file says to go on where records have expired."""
    topic, partition = place
    if expected > end:
        source = next((source for source, name in selection.made_anew.items() if name == topic), topic)
        raise SourceError(
            f"expected to read on at offset {expected}, and the broker ends at {end}: it has lost records that the lake "
            "has, or the topic was made again. Offsets that come now are not those that the lake knows, so their records "
            f"need another name in it: source.made_anew: {{{source}: {_another_name(topic)}}} takes in what the broker has, "
            "from its start",
            topic=topic,
            partition=partition,
            offset=expected,
        )
    chosen = selection.resume_at.get(place)
    if chosen is not None and first <= chosen <= end:
        return chosen
    said = "" if chosen is None else f" (it says {chosen} now, and the broker has {first} to {end})"
    raise SourceError(
        f"expected to read on at offset {expected}, and the broker begins at {first}: the {first - expected} records before "
        f"it have expired. To go on without them write source.resume_at: {{{topic}: {{{partition}: {first}}}}}{said}; a "
        "check keeps saying what was given up",
        topic=topic,
        partition=partition,
        offset=expected,
    )
