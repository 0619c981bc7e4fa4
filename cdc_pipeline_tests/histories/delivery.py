"""Sent messages as Kafka records, split into files as a consumer could have written them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cdc_pipeline_tests.histories.choices import Choices
from cdc_pipeline_tests.histories.sender import Sent
from cdc_pipeline_tests.support.messages import EPOCH_MS, record_line


@dataclass(frozen=True)
class Record:
    """A Kafka record. `commit_ts` is upstream's, even if the payload does not show it. `kind`: as in `Message`."""

    topic: str
    partition: int
    offset: int
    payload: str
    commit_ts: int
    kind: str

    def line(self) -> str:
        """The record as `kcat -C -J` prints it. A false watermark has the Kafka timestamp of the records around it."""
        sent = EPOCH_MS + self.offset if self.kind == "note" else None
        return record_line(self.payload, self.topic, self.partition, self.offset, sent=sent)


@dataclass(frozen=True)
class Slice:
    """The records of one file. `complete_tso`: the TSO whose state the slices so far hold. None if there is no such TSO."""

    records: tuple[Record, ...]
    complete_tso: int | None = None


def delivered(timeline: Iterable[Sent], topic: str, partitions: int) -> list[Record]:
    """The records in sending order. A watermark becomes one record in each partition."""
    offsets = [0] * partitions
    found: list[Record] = []
    for sent in timeline:
        message = sent.message
        payload = message.payload(sent.ts, sent.batch)
        for partition in range(partitions) if message.kind == "watermark" else (message.partition,):
            found.append(Record(topic, partition, offsets[partition], payload, message.commit_ts, message.kind))
            offsets[partition] += 1
    return found


def resolved_tso(records: Iterable[Record], applied: int | None = None) -> int | None:
    """The TSO up to which mirrors can advance after these records, at least `applied`.

    It is the minimum over all partitions of their largest watermark, or None if a partition has no watermark. Partitions
    without records do not count, so the first file begins with a watermark in each partition.
    """
    marks: dict[tuple[str, int], int] = {}
    for record in records:
        place = record.topic, record.partition
        mark = record.commit_ts if record.kind == "watermark" else 0
        marks[place] = max(marks.get(place, 0), mark)
    found = min(marks.values(), default=0) or None
    return max((tso for tso in (found, applied) if tso is not None), default=None)


def sliced(
    records: Sequence[Record],
    complete: dict[tuple[int, int], int],
    count: int,
    choices: Choices,
    *,
    in_step: bool,
    alone: bool,
    repeats: int,
) -> list[Slice]:
    """The records in `count` files. Each file holds an offset range of every partition; partitions may advance unevenly.

    The first file has a record of each partition. Some records are redelivered in a later file: the same bytes at the
    same offset.

    `complete`: (partition, offset) → TSO, for each record that completes the state of a TSO. `in_step`: each file continues
    the sending order where the one before ended. `alone`: the topic has one partition.
    """
    ends: dict[int, int] = {}
    for record in records:
        ends[record.partition] = record.offset + 1
    progress = [dict.fromkeys(ends, 0)]
    for left in range(count - 1, 0, -1):
        progress.append(
            _advanced(records, progress[-1], ends, complete if alone else {}, left, choices, in_step=in_step)
        )
    progress.append(ends)
    found = []
    for number, (start, stop) in enumerate(pairwise(progress)):
        part = [record for record in records if start[record.partition] <= record.offset < stop[record.partition]]
        earlier = [record for record in records if record.offset < start[record.partition]]
        for _ in range(repeats if number and earlier else 0):
            part.insert(choices.integer(0, len(part)), choices.pick(earlier))
        tso = None
        if (in_step or len(stop) == 1) and any(stop.values()):
            last = records[sum(stop.values()) - 1]
            tso = complete.get((last.partition, last.offset))
        found.append(Slice(tuple(part), tso))
    return found


def _advanced(
    records: Sequence[Record],
    done: dict[int, int],
    ends: dict[int, int],
    complete: dict[tuple[int, int], int],
    left: int,
    choices: Choices,
    *,
    in_step: bool,
) -> dict[int, int]:
    """The end offset of each partition after the next file, if `left` more files follow."""
    first = not any(done.values())
    if len(ends) == 1 and choices.chance(0.5):
        # end the file where the state of a TSO is complete
        (partition,) = ends
        marks = [offset + 1 for _, offset in complete if offset >= done[partition]]
        if marks:
            return {partition: choices.pick(sorted(marks))}
    if not in_step:
        return {
            partition: choices.integer(
                max(done[partition], int(first)), max(1, end - (end - done[partition]) * left // 8)
            )
            for partition, end in ends.items()
        }
    reached = sum(done.values())
    position = choices.integer(reached, len(records))
    counts = dict.fromkeys(ends, 0)
    for record in records[:position]:
        counts[record.partition] += 1
    return counts
