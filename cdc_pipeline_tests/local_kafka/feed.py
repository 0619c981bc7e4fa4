"""Feeding a broker with a capture: each record to its own topic and partition, byte for byte, with its time."""

from __future__ import annotations

import base64
import gzip
import heapq
import json
import time
import zlib
from collections import defaultdict
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # the package is typed, but has no __all__

from cdc_pipeline.errors import SourceError, TransientError
from cdc_pipeline.sources.capture_files.reading import list_folder
from cdc_pipeline_tests.local_kafka.clients import SILENT, quiet_admin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_LARGEST_MESSAGE = 64 << 20
_TOPIC_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a capture; `offset` is the capture's, which need not be the one that it gets when it is produced."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Delivered:
    """A record, and the offset that the broker gave it."""

    record: Record
    offset: int


def capture_records(folder: Path | str) -> Iterator[Record]:
    """The records of a capture folder in the order of their times, those of one partition in that of their offsets.

    Where a partition's times go back, a record counts as being of its predecessor's time. The same (topic, partition,
    offset) twice is one record. Raises SourceError for a folder that the source `capture_files` would not read.
    """
    partitions: dict[tuple[str, int], dict[int, Record]] = defaultdict(dict)
    for file in list_folder(str(folder)).files:
        for record in _records_of(Path(file.path)):
            partitions[record.topic, record.partition].setdefault(record.offset, record)
    queues = (_timed([by_offset[offset] for offset in sorted(by_offset)]) for by_offset in partitions.values())
    # on equal times by topic and partition, so that each feed of a capture is the same
    for _moment, record in heapq.merge(*queues, key=lambda timed: (timed[0], timed[1].topic, timed[1].partition)):
        yield record


def topics_of(records: Iterable[Record]) -> dict[str, int]:
    """The topics of the records, each with as many partitions as its highest one needs."""
    topics: dict[str, int] = {}
    for record in records:
        topics[record.topic] = max(topics.get(record.topic, 0), record.partition + 1)
    return topics


def create_topics(bootstrap: str, topics: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
    """Makes the topics (name and number of partitions), and waits until the broker serves all their partitions.

    Raises TransientError where it does not make one, for example because it is there already.
    """
    admin = quiet_admin(bootstrap)
    wanted = [
        NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        for name, partitions in topics.items()
    ]
    if not wanted:
        return
    for name, answer in admin.create_topics(wanted, operation_timeout=_TOPIC_SECONDS).items():
        try:
            answer.result(_TOPIC_SECONDS)
        except KafkaException as error:
            raise TransientError(f"the topic was not made: {_said(error.args[0])}", topic=name) from error
    until = time.monotonic() + _TOPIC_SECONDS
    while True:
        known = admin.list_topics(timeout=_TOPIC_SECONDS).topics
        led = {
            name: sum(partition.leader >= 0 for partition in known[name].partitions.values())
            for name in topics
            if name in known
        }
        if led == dict(topics):
            return
        if time.monotonic() > until:
            raise TransientError(f"after {_TOPIC_SECONDS:g} s the broker serves {led} of {dict(topics)} partitions")
        time.sleep(0.02)


def produced(
    bootstrap: str,
    records: Iterable[Record],
    *,
    slice_size: int = 1000,
    records_per_second: float | None = None,
    idempotent: bool = False,
    client_settings: Mapping[str, Any] | None = None,
    timeout_seconds: float = 60.0,
) -> Iterator[list[Delivered]]:
    """Produces slice by slice, and gives each slice when the broker has all of it. Nothing is sent ahead of being asked
    for: a caller that stops after a slice has produced that much and no more, and one that does not iterate, nothing.

    With `records_per_second` each record waits for its turn at that speed, counted from the first one. Order is kept in
    any case; a record whose acknowledgement is lost because the broker ends meanwhile may be there twice, unless
    `idempotent`, for which librdkafka takes half a second at the start. `client_settings` are librdkafka's, for a
    listener with security. Raises TransientError for a record that the broker has not taken after `timeout_seconds`.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            # a record that is sent again may otherwise overtake its successor
            **({"enable.idempotence": True} if idempotent else {"max.in.flight": 1}),
            # topics are made before; the default is to wait 30 s for one to appear
            "topic.metadata.propagation.max.ms": 2000,
            "delivery.timeout.ms": int(timeout_seconds * 1000),
            "message.max.bytes": _LARGEST_MESSAGE,
            "linger.ms": 5,
            **(client_settings or {}),
        },
        logger=SILENT,
    )
    source, sent, started = iter(records), 0, time.monotonic()
    while part := list(islice(source, slice_size)):
        delivery = _Delivery(len(part))
        for place, record in enumerate(part):
            if records_per_second:
                _wait(producer, started + (sent + place) / records_per_second)
            _send(producer, record, delivery, place)
        left = producer.flush(timeout_seconds + 5)
        sent += len(part)
        yield delivery.of(part, left)


class _Delivery:
    """What the broker said about the records of one slice."""

    def __init__(self, count: int) -> None:
        self._offsets: list[int | None] = [None] * count
        self._errors: dict[int, KafkaError] = {}

    def heard(self, place: int, error: KafkaError | None, message: Message | None) -> None:
        if error is not None:
            self._errors[place] = error
        elif message is not None:
            self._offsets[place] = message.offset()

    def of(self, part: list[Record], left: int) -> list[Delivered]:
        """The slice with its offsets. Raises TransientError for the first record that has none."""
        delivered = []
        for place, (record, offset) in enumerate(zip(part, self._offsets, strict=True)):
            if offset is None:
                error = self._errors.get(place)
                said = f"{left} records are still waiting" if error is None else _said(error)
                raise TransientError(
                    f"the broker did not take the capture's offset {record.offset}: {said}",
                    topic=record.topic,
                    partition=record.partition,
                )
            delivered.append(Delivered(record, offset))
        return delivered


def _wait(producer: Producer, until: float) -> None:
    """Lets the client work until then; it comes back early from each acknowledgement."""
    while (left := until - time.monotonic()) > 0:
        producer.poll(left)


def _send(producer: Producer, record: Record, delivery: _Delivery, place: int) -> None:
    """Hands a record to the client, waiting where its queue is full."""
    arguments: dict[str, Any] = {} if record.timestamp_ms is None else {"timestamp": record.timestamp_ms}
    while True:
        try:
            producer.produce(
                record.topic,
                value=record.value,
                key=record.key,
                partition=record.partition,
                headers=list(record.headers),
                on_delivery=lambda error, message: delivery.heard(place, error, message),
                **arguments,
            )
        except BufferError:
            producer.poll(0.1)
        except KafkaException as error:  # refused before it is sent: too large, or of a partition that is not there
            delivery.heard(place, error.args[0], None)
            return
        else:
            producer.poll(0)
            return


def _said(error: KafkaError) -> str:
    return f"{error.name()}: {error.str()}"


def _timed(records: list[Record]) -> Iterator[tuple[int, Record]]:
    """Records of one partition with times that never go back; one without a time has its predecessor's."""
    moment = 0
    for record in records:
        moment = max(moment, record.timestamp_ms or 0)
        yield moment, record


def _records_of(path: Path) -> Iterator[Record]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    yield _record(line, f"{path.name}, line {number}")
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{path.name} cannot be read: {error}") from error


def _record(line: bytes, place: str) -> Record:
    """A line as `kcat -C -J` prints it. Raises SourceError where it is none."""
    try:
        read = json.loads(line)
        headers = read.get("headers") or []
        return Record(
            topic=str(read["topic"]),
            partition=int(read["partition"]),
            offset=int(read["offset"]),
            timestamp_ms=_timestamp(read.get("ts")),
            key=_bytes(read, "key"),
            value=_bytes(read, "payload"),
            headers=tuple(
                (name, None if value is None else value.encode())
                for name, value in zip(headers[::2], headers[1::2], strict=True)
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{place} is no record: {error}") from error


def _timestamp(read: object) -> int | None:
    """kcat prints -1 for a record without a time. A time of 0 means "now" to the client, so that is none, either."""
    return read if isinstance(read, int) and read > 0 else None


def _bytes(read: dict[str, Any], name: str) -> bytes | None:
    """The text as UTF-8, or what stands in its place as base64; None for a tombstone or a null key."""
    text = read.get(name)
    if isinstance(text, str):
        return text.encode()
    if text is not None:
        raise TypeError(f"{name} is neither text nor null")
    encoded = read.get(f"{name}_base64")
    return None if encoded is None else base64.b64decode(encoded, validate=True)
