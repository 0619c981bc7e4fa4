"""Reads captures, produces them, and compares what a broker stores."""

from __future__ import annotations

import base64
import gzip
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.errors import SourceError, TransientError
from cdc_pipeline_tests.local_kafka.conftest import Kafka
from cdc_pipeline_tests.local_kafka.feed import Record, capture_records, create_topics, partition_counts, produce
from cdc_pipeline_tests.support.servers.kafka_clients import consumed, values

CAPTURES = Path(__file__).parents[2] / "data" / "captures"


def line(offset: int, ts: int | None, partition: int = 0, **more: Any) -> str:
    return json.dumps({"topic": "t", "partition": partition, "offset": offset, "ts": ts, "payload": "{}", **more})


def capture(folder: Path, *lines: str) -> list[Record]:
    (folder / "part.jsonl").write_text("\n".join(lines) + "\n")
    return list(capture_records(folder))


def test_the_shop_comes_as_it_was_sent_and_arrives_byte_for_byte(kafka: Kafka) -> None:
    bootstrap, records = kafka.broker.bootstrap, list(capture_records(CAPTURES / "shop"))
    topics = partition_counts(records)
    assert topics == {"shop-ticdc": 4}
    assert Counter(record.partition for record in records) == {0: 909, 1: 773, 2: 896, 3: 870}
    assert [record.timestamp_ms for record in records] == sorted(record.timestamp_ms or 0 for record in records)
    create_topics(bootstrap, topics)
    # on a loaded machine an acknowledgement may be late: idempotence prevents duplicates of retries
    delivered = [found for part in produce(bootstrap, records, idempotent=True) for found in part]
    assert [found.record for found in delivered] == records
    # the capture's offsets start at 0 without gaps, so the broker assigns the same
    assert [found.offset for found in delivered] == [record.offset for record in records]

    by_partition: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for name in ("part-0001.jsonl.gz", "part-0002.jsonl.gz"):
        with gzip.open(CAPTURES / "shop" / name, "rt") as stream:
            for read in map(json.loads, stream):
                by_partition[read["partition"]].append(read)
    for partition, sent in by_partition.items():
        got = consumed(bootstrap, "shop-ticdc", len(sent), partition=partition)
        assert [(message.value(), message.key(), message.timestamp()[1], message.headers()) for message in got] == [
            (read["payload"].encode(), None, read["ts"], None) for read in sent
        ]


@pytest.mark.parametrize("name", sorted(folder.name for folder in CAPTURES.iterdir() if folder.is_dir()))
def test_every_capture_is_read_whole_and_in_order(name: str) -> None:
    lines = 0
    for file in (CAPTURES / name).glob("*.jsonl.gz"):
        with gzip.open(file) as stream:
            lines += sum(1 for _line in stream)
    offsets: dict[tuple[str, int], int] = {}
    count = 0
    for record in capture_records(CAPTURES / name):
        place = record.topic, record.partition
        assert record.offset > offsets.get(place, -1)
        offsets[place], count = record.offset, count + 1
    assert count == lines > 0


def test_bytes_headers_and_tombstones_arrive_as_they_are(kafka: Kafka, tmp_path: Path) -> None:
    raw = b"\xff\x00\xfe"
    text = base64.b64encode(raw).decode()
    records = capture(
        tmp_path,
        line(5, 1_700_000_000_123, payload=None, payload_base64=text, key=None, key_base64=text),
        line(9, 4_000_000_000_000, payload=None, key="é", headers=["a", "1", "a", "", "b", None]),
        line(11, -1, payload="", key=""),
    )
    create_topics(kafka.broker.bootstrap, {"t": 1})
    delivered = [found for part in produce(kafka.broker.bootstrap, records) for found in part]
    assert [(found.record.offset, found.offset) for found in delivered] == [(5, 0), (9, 1), (11, 2)]
    first, second, third = consumed(kafka.broker.bootstrap, "t", 3)
    assert (first.key(), first.value(), first.timestamp()[1]) == (raw, raw, 1_700_000_000_123)
    assert (second.key(), second.value(), second.timestamp()[1]) == ("é".encode(), None, 4_000_000_000_000)
    assert second.headers() == [("a", b"1"), ("a", b""), ("b", None)]
    assert (third.key(), third.value()) == (b"", b"")
    assert abs(third.timestamp()[1] - time.time() * 1000) < 60_000


def test_a_partition_keeps_its_order_where_its_times_go_back(tmp_path: Path) -> None:
    records = capture(
        tmp_path,
        line(1, 50),
        line(0, 100),
        line(2, None),
        line(7, 99, 1),
        line(8, 101, 1),
        line(1, 50, payload="other"),
    )
    assert [(record.partition, record.offset) for record in records] == [(1, 7), (0, 0), (0, 1), (0, 2), (1, 8)]
    assert {record.value for record in records} == {b"{}"}


def test_files_without_records_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "expected.jsonl").write_text('{"watermark": 1}\n')
    assert [record.offset for record in capture(tmp_path, line(0, 1), "", line(1, 2))] == [0, 1]


@pytest.mark.parametrize(
    "second",
    ["nonsense", "[]", '{"topic": "t"}', line(1, 1, payload={"a": 1}), line(1, 1, headers=["odd"]), '"half', "null"]
    + [line(1, 1, payload="\ud800"), line(1, 1, payload=None, payload_base64="*")],
)
def test_a_line_that_is_no_record_is_reported_with_its_position(tmp_path: Path, second: str) -> None:
    with pytest.raises(SourceError, match=r"part\.jsonl, line 2 is not a record"):
        capture(tmp_path, line(0, 1), second)


def test_a_truncated_file_is_reported(tmp_path: Path) -> None:
    whole = (CAPTURES / "types-canal" / "records.jsonl.gz").read_bytes()
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError, match=r"cut\.jsonl\.gz cannot be read"):
        list(capture_records(tmp_path))


def counted(topic: str, count: int) -> Iterator[Record]:
    return (Record(topic, number % 2, number, number + 1, None, str(number).encode()) for number in range(count))


def test_nothing_is_sent_ahead_of_being_asked_for(kafka: Kafka) -> None:
    bootstrap = kafka.broker.bootstrap
    create_topics(bootstrap, {"sliced": 2})
    records = counted("sliced", 100)
    slices = produce(bootstrap, records, slice_size=10)
    assert [len(part) for part in islice(slices, 3)] == [10, 10, 10]
    assert next(records).offset == 30
    assert values(consumed(bootstrap, "sliced", 15, partition=1)) == [str(number) for number in range(1, 30, 2)]
    assert values(consumed(bootstrap, "sliced", 15, partition=0)) == [str(number) for number in range(0, 30, 2)]
    with pytest.raises(AssertionError):
        consumed(bootstrap, "sliced", 16, seconds=0.5)


def test_a_refused_record_is_reported_with_its_position(kafka: Kafka) -> None:
    bootstrap = kafka.broker.bootstrap
    create_topics(bootstrap, {"small": 1}, {"max.message.bytes": "1000"})
    sent = produce(bootstrap, [Record("small", 0, 7, None, None, b"x" * 2000)])
    with pytest.raises(TransientError, match=r"offset 7: MSG_SIZE_TOO_LARGE.*\[topic small, partition 0\]"):
        list(sent)
    good, beyond = Record("small", 0, 0, None, None, b"x"), Record("small", 5, 8, None, None, b"x")
    with pytest.raises(TransientError, match=r"offset 8: _UNKNOWN_PARTITION.*\[topic small, partition 5\]"):
        list(produce(bootstrap, [good, beyond], slice_size=1))


def test_a_feed_keeps_its_speed(kafka: Kafka) -> None:
    create_topics(kafka.broker.bootstrap, {"paced": 2})
    list(produce(kafka.broker.bootstrap, counted("paced", 1)))
    started = time.monotonic()
    sent = produce(
        kafka.broker.bootstrap, counted("paced", 100), slice_size=25, records_per_second=100, idempotent=True
    )
    assert sum(map(len, sent)) == 100
    assert 0.95 < time.monotonic() - started < 5
