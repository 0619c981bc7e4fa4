"""Produces the records of a capture to their topics and partitions, byte for byte, with their timestamps."""

from __future__ import annotations

import base64
import gzip
import heapq
import json
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # the package is typed, but has no __all__

from cdc_pipeline.errors import SourceError, TransientError
from cdc_pipeline.sources.capture_files.reading import list_folder
from cdc_pipeline_tests.local_kafka.clients import SILENT, quiet_admin

_LARGEST_MESSAGE = 64 << 20
_TOPIC_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a capture."""

    topic: str
    partition: int
    offset: int
    """Offset in the capture. The broker may assign another one."""
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Delivered:
    """A record with the offset that the broker assigned."""

    record: Record
    offset: int


def capture_records(folder: Path | str) -> Iterator[Record]:
    """The records of a capture folder by timestamp; within a partition by offset.

    If timestamps of a partition go back, the record sorts with the timestamp of its predecessor. Duplicates of (topic,
    partition, offset) are dropped. Raises SourceError for a folder that the source `capture_files` would not read.
    """
    partitions: dict[tuple[str, int], dict[int, Record]] = defaultdict(dict)
    for file in list_folder(str(folder)).files:
        for record in _records_of(Path(file.path)):
            partitions[record.topic, record.partition].setdefault(record.offset, record)
    queues = (_timed([by_offset[offset] for offset in sorted(by_offset)]) for by_offset in partitions.values())
    # ties are ordered by topic and partition, so that the order is deterministic
    for _time_ms, record in heapq.merge(*queues, key=lambda timed: (timed[0], timed[1].topic, timed[1].partition)):
        yield record


def partition_counts(records: Iterable[Record]) -> dict[str, int]:
    """Topic → number of partitions that the records need."""
    topics: dict[str, int] = {}
    for record in records:
        topics[record.topic] = max(topics.get(record.topic, 0), record.partition + 1)
    return topics


def create_topics(bootstrap: str, topics: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
    """Creates topics (name → number of partitions) and waits until all partitions have a leader.

    Raises TransientError if a topic cannot be created, for example because it exists.
    """
    admin = quiet_admin(bootstrap)
    new_topics = [
        NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        for name, partitions in topics.items()
    ]
    if not new_topics:
        return
    for name, answer in admin.create_topics(new_topics, operation_timeout=_TOPIC_SECONDS).items():
        try:
            answer.result(_TOPIC_SECONDS)
        except KafkaException as error:
            raise TransientError(f"the topic was not created: {_error_text(error.args[0])}", topic=name) from error
    until = time.monotonic() + _TOPIC_SECONDS
    while True:
        known = admin.list_topics(timeout=_TOPIC_SECONDS).topics
        leaders = {
            name: sum(partition.leader >= 0 for partition in known[name].partitions.values())
            for name in topics
            if name in known
        }
        if leaders == dict(topics):
            return
        if time.monotonic() > until:
            raise TransientError(f"after {_TOPIC_SECONDS:g} s {leaders} of {dict(topics)} partitions have a leader")
        time.sleep(0.02)


def produce(
    bootstrap: str,
    records: Iterable[Record],
    *,
    slice_size: int = 1000,
    records_per_second: float | None = None,
    idempotent: bool = False,
    client_settings: Mapping[str, Any] | None = None,
    timeout_seconds: float = 60.0,
) -> Iterator[list[Delivered]]:
    """Produces the records in slices, in order, and yields each slice after the broker has acknowledged it.

    It is lazy: a slice is produced when the caller requests it. A record whose acknowledgement is lost may be produced
    twice, unless `idempotent`, which costs half a second at the start. `client_settings` are settings of librdkafka for
    a listener with security. Raises TransientError for a record that is not acknowledged within `timeout_seconds`.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            # otherwise a retried record may overtake its successor
            **({"enable.idempotence": True} if idempotent else {"max.in.flight": 1}),
            # the topics exist; the default waits 30 s for a missing topic
            "topic.metadata.propagation.max.ms": 2000,
            "delivery.timeout.ms": int(timeout_seconds * 1000),
            "message.max.bytes": _LARGEST_MESSAGE,
            "linger.ms": 5,
            **(client_settings or {}),
        },
        logger=SILENT,
    )
    source, sent, started = iter(records), 0, time.monotonic()
    while batch := list(islice(source, slice_size)):
        delivery = _Delivery(len(batch))
        for index, record in enumerate(batch):
            if records_per_second:
                _wait(producer, started + (sent + index) / records_per_second)
            _send(producer, record, delivery, index)
        unsent = producer.flush(timeout_seconds + 5)
        sent += len(batch)
        yield delivery.delivered(batch, unsent)


class _Delivery:
    """Delivery reports for the records of one slice."""

    def __init__(self, count: int) -> None:
        self._offsets: list[int | None] = [None] * count
        self._errors: dict[int, KafkaError] = {}

    def report(self, index: int, error: KafkaError | None, message: Message | None) -> None:
        if error is not None:
            self._errors[index] = error
        elif message is not None:
            self._offsets[index] = message.offset()

    def delivered(self, records: list[Record], unsent: int) -> list[Delivered]:
        """The records with their offsets. Raises TransientError for the first record without one."""
        delivered = []
        for index, (record, offset) in enumerate(zip(records, self._offsets, strict=True)):
            if offset is None:
                error = self._errors.get(index)
                reason = f"{unsent} records are still in the queue" if error is None else _error_text(error)
                raise TransientError(
                    f"the broker did not acknowledge the capture's offset {record.offset}: {reason}",
                    topic=record.topic,
                    partition=record.partition,
                )
            delivered.append(Delivered(record, offset))
        return delivered


def _wait(producer: Producer, until: float) -> None:
    """Polls the client until then. `poll` returns early after each delivery report."""
    while (remaining := until - time.monotonic()) > 0:
        producer.poll(remaining)


def _send(producer: Producer, record: Record, delivery: _Delivery, index: int) -> None:
    """Queues a record, waiting while the queue is full."""
    arguments: dict[str, Any] = {} if record.timestamp_ms is None else {"timestamp": record.timestamp_ms}
    while True:
        try:
            producer.produce(
                record.topic,
                value=record.value,
                key=record.key,
                partition=record.partition,
                headers=list(record.headers),
                on_delivery=lambda error, message: delivery.report(index, error, message),
                **arguments,
            )
        except BufferError:
            producer.poll(0.1)
        except KafkaException as error:  # rejected by the client: too large, or an unknown partition
            delivery.report(index, error.args[0], None)
            return
        else:
            producer.poll(0)
            return


def _error_text(error: KafkaError) -> str:
    return f"{error.name()}: {error.str()}"


def _timed(records: list[Record]) -> Iterator[tuple[int, Record]]:
    """Records of a partition with monotonic timestamps in ms; a record without one has that of its predecessor."""
    time_ms = 0
    for record in records:
        time_ms = max(time_ms, record.timestamp_ms or 0)
        yield time_ms, record


def _records_of(path: Path) -> Iterator[Record]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    yield _record(line, f"{path.name}, line {number}")
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{path.name} cannot be read: {error}") from error


def _record(line: bytes, place: str) -> Record:
    """Parses a line of `kcat -C -J`. Raises SourceError for another format."""
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
        raise SourceError(f"{place} is not a record: {error}") from error


def _timestamp(read: object) -> int | None:
    """kcat prints -1 for a record without a timestamp. 0 means "now" to the client, so it counts as none, too."""
    return read if isinstance(read, int) and read > 0 else None


def _bytes(read: dict[str, Any], name: str) -> bytes | None:
    """The text as UTF-8, or the decoded base64 field; None for a tombstone or a null key."""
    text = read.get(name)
    if isinstance(text, str):
        return text.encode()
    if text is not None:
        raise TypeError(f"{name} is neither text nor null")
    encoded = read.get(f"{name}_base64")
    return None if encoded is None else base64.b64decode(encoded, validate=True)
