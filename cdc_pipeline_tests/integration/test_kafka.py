"""A live broker: each of its records arrives in the lake once, whatever happens on the way."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import dagster as dg
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]  # the package is typed, but has no __all__
from pyspark.sql import SparkSession

from cdc_pipeline.checks.contract import validate_table
from cdc_pipeline.checks.streams import lost_offsets_result
from cdc_pipeline.cli.declared import DeclaredPipeline
from cdc_pipeline.cli.doctor import Finding, examine
from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import KafkaSource
from cdc_pipeline.dialects.decoded_tables import decode_batches
from cdc_pipeline.errors import SourceError, TransientError
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.sources.kafka.client_settings import ClientSettings
from cdc_pipeline.sources.kafka.positions import Start, TopicSelection
from cdc_pipeline.sources.kafka.source import KafkaTopics
from cdc_pipeline.sources.raw_batches import newest_note
from cdc_pipeline.sources.source import Intake, NewRecords, NoNewRecords, RunContext
from cdc_pipeline_tests.local_kafka.broker import LocalBroker
from cdc_pipeline_tests.local_kafka.clients import quiet_admin
from cdc_pipeline_tests.local_kafka.feed import Record, capture_records, create_topics, partition_counts, produce
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.runs import mirror_differences, records_until
from cdc_pipeline_tests.support.large_messages import lz4
from cdc_pipeline_tests.support.messages import EPOCH_MS, watermark
from cdc_pipeline_tests.support.messages import row as row_change

_CAPTURE = Path(__file__).parents[2] / "data" / "captures" / "shop"
_WATERMARKS = 5
_TICK_SECONDS = 1.0
"""The longest allowed tick of a sensor with 200 partitions."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("kafka")) as found:
        yield found


@dataclass(frozen=True)
class Reader:
    """A lake and the source that fills it."""

    spark: SparkSession
    paths: LakePaths
    source: KafkaTopics

    def ingest(self, until: dict[str, dict[str, int]] | None = None) -> Intake:
        return self.source.ingest(Lake(self.spark, self.paths), RunContext("run", lambda line: None), until)

    def find_new_records(self) -> NewRecords | NoNewRecords:
        return self.source.find_new_records(newest_note(self.paths))

    def values(self) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
        """Offset and value of each record in the lake, by partition."""
        found: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
        rows = self.spark.read.format("delta").load(self.paths.table("raw_topic_snapshot")).collect()
        for row in sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"])):
            found.setdefault((row["topic"], row["partition"]), []).append((row["offset"], bytes(row["value"])))
        return found

    def declared(self, **selection: object) -> Reader:
        """The same lake with another declaration of the source."""
        return replace(self, source=replace(self.source, selection=replace(self.source.selection, **selection)))  # type: ignore[arg-type]


def _reader(
    broker: LocalBroker, spark: SparkSession, paths: LakePaths, *topics: str, most: int = 100_000, **selection: object
) -> Reader:
    chosen = TopicSelection(topics=topics, **selection)  # type: ignore[arg-type]
    return Reader(spark, paths, KafkaTopics(ClientSettings(broker.bootstrap, {}), chosen, most))


def _records(topic: str, *values: str, partition: int = 0, timestamp_ms: int | None = None) -> list[Record]:
    return [Record(topic, partition, 0, timestamp_ms, None, value.encode()) for value in values]


def _produce(broker: LocalBroker, records: list[Record]) -> None:
    for _ in produce(broker.bootstrap, records):
        pass


def _topic(broker: LocalBroker, name: str, *values: str, partitions: int = 1) -> None:
    create_topics(broker.bootstrap, {name: partitions})
    _produce(broker, _records(name, *values))


# ---- the shop, live


def test_the_shop_in_slices_during_production(broker: LocalBroker, spark: SparkSession, tmp_path: Path) -> None:
    """Each slice is its own run. In the end each record exists once, byte for byte, and each mirror equals its source.

    Uses a part of the shop: `test_slices` and `test_shop` use all of it.
    """
    with (_CAPTURE / "expected_at_watermarks.jsonl").open(encoding="utf-8") as stream:
        truth_at_end = [json.loads(line) for line in stream][_WATERMARKS - 1]
    end = records_until(capture_records(_CAPTURE), truth_at_end["watermark"])
    records = [replace(record, topic="live") for record in end]
    create_topics(broker.bootstrap, partition_counts(records))
    paths = LakePaths(str(tmp_path / "lake"), "shop")
    reader = _reader(broker, spark, paths, "live", most=400)
    resolved, done = [], threading.Event()

    def feed() -> None:
        for _ in produce(broker.bootstrap, records, slice_size=100, records_per_second=150):
            pass
        done.set()

    feeder = threading.Thread(target=feed)
    feeder.start()
    while not done.is_set() or isinstance(reader.find_new_records(), NewRecords):
        if isinstance(reader.find_new_records(), NewRecords):
            ingest(spark, paths, reader.source)
            resolved.append(published_cut(Lake(spark, paths)).resolved_tso or 0)
    feeder.join()
    assert len(resolved) > 1
    assert resolved == sorted(resolved)
    produced_values = Counter((record.partition, record.value) for record in records)
    found = reader.values()
    assert Counter((position[1], value) for position, values in found.items() for _, value in values) == produced_values
    assert all([offset for offset, _ in values] == list(range(len(values))) for values in found.values())
    wrong = {
        table: lines
        for table, truth in truth_at_end["tables"].items()
        if (lines := mirror_differences(spark, paths, TableName(*table.split(".", 1)), truth["columns"], truth["rows"]))
    }
    assert wrong == {}


def test_a_broker_that_dies_in_a_run(
    broker: LocalBroker, spark: SparkSession, paths: LakePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only whole batches are ingested. The next run continues after them."""
    _topic(broker, "dies", *map(str, range(90)))
    reader = _reader(broker, spark, paths, "dies", most=30)
    monkeypatch.setattr("cdc_pipeline.sources.kafka.broker.TIMEOUT_SECONDS", 3.0)
    lines: list[str] = []

    def report(line: str) -> None:
        lines.append(line)
        if len(lines) == 2:
            broker.kill()

    impatient = replace(
        reader.source,
        client=ClientSettings(broker.bootstrap, {"default.api.timeout.ms": "3000", "request.timeout.ms": "2000"}),
    )
    try:
        with pytest.raises(TransientError, match=r"dies/0 60 to 89 could not be read from the Kafka broker"):
            impatient.ingest(Lake(spark, paths), RunContext("run", report))
        assert [offset for offset, _ in reader.values()["dies", 0]] == list(range(60))
        with pytest.raises(TransientError, match="does not answer"):
            reader.find_new_records()
        with pytest.raises(TransientError, match="does not answer"):
            reader.ingest()
    finally:
        broker.start()
    assert reader.ingest().batches == (3,)
    assert [offset for offset, _ in reader.values()["dies", 0]] == list(range(90))
    assert isinstance(reader.find_new_records(), NoNewRecords)


# ---- start positions


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (Start("earliest"), 0),
        (Start("latest"), 3),
        (Start("time", time_ms=2000), 1),
        (Start("time", time_ms=9000), 3),
        (Start("offsets", offsets={("starts", 0): 2}), 2),
    ],
    ids=lambda value: value.at + str(value.time_ms) if isinstance(value, Start) else None,
)
def test_start_positions(start: Start, first: int, broker: LocalBroker, spark: SparkSession, paths: LakePaths) -> None:
    """Later records are not lost: if the first run found none, the second one starts where the first one started."""
    admin = quiet_admin(broker.bootstrap)
    if "starts" not in admin.list_topics(timeout=10).topics:
        create_topics(broker.bootstrap, {"starts": 1})
        for second in (1, 2, 3):
            _produce(broker, _records("starts", str(second), timestamp_ms=second * 1000))
    reader = _reader(broker, spark, paths, "starts", start=start)
    intake = reader.ingest({"starts": {"0": 3}})
    assert (intake.batches, intake.records) == ((1,), 3 - first)
    assert intake.positions["next"] == {"starts": {"0": 3}}
    noted = {
        "offsets": [("starts", 0, first, 2, 3 - first)],
        "plain": False,
        "zero_ids": False,
    }  # a digit is not JSON's {
    assert intake.notes == ({1: noted} if first < 3 else {})
    assert [value for values in reader.values().values() for _, value in values] == [b"1", b"2", b"3"][first:]
    (batch,) = decode_batches(Lake(spark, paths))
    assert (batch.counts.records, batch.counts.is_balanced) == (3 - first, True)


def test_a_start_at_the_end_is_fixed_by_the_first_run(
    broker: LocalBroker, spark: SparkSession, paths: LakePaths
) -> None:
    _topic(broker, "end", "a", "b")
    reader = _reader(broker, spark, paths, "end", start=Start("latest"))
    reader.ingest()
    _produce(broker, _records("end", "c"))
    assert reader.ingest().records == 1
    assert reader.values() == {("end", 0): [(2, b"c")]}


# ---- new, growing and deleted topics


def test_topics_and_partitions_that_appear_later(broker: LocalBroker, spark: SparkSession, paths: LakePaths) -> None:
    _topic(broker, "grows.a", "1")
    reader = Reader(
        spark,
        paths,
        KafkaTopics(ClientSettings(broker.bootstrap, {}), TopicSelection(pattern=r"grows\..*", start=Start("latest"))),
    )
    reader.ingest()
    _topic(broker, "grows.b", "2")
    admin = quiet_admin(broker.bootstrap)
    admin.create_partitions([NewPartitions("grows.a", 2)])["grows.a"].result()
    _wait_for_partitions(broker, "grows.a", 2)
    _produce(broker, [*_records("grows.a", "3", partition=1), *_records("other", "4")][:1])
    news = reader.find_new_records()
    assert isinstance(news, NewRecords)
    assert news.until == {"grows.a": {"0": 1, "1": 1}, "grows.b": {"0": 1}}
    assert reader.ingest().records == 2
    assert reader.values() == {("grows.a", 1): [(0, b"3")], ("grows.b", 0): [(0, b"2")]}


def _wait_for_partitions(broker: LocalBroker, topic: str, number: int) -> None:
    admin, until = quiet_admin(broker.bootstrap), time.monotonic() + 10
    while len(admin.list_topics(timeout=10).topics[topic].partitions) < number:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_offsets_that_expired(broker: LocalBroker, spark: SparkSession, paths: LakePaths) -> None:
    """The run and the sensor fail with the setting to add. With it they continue, and the loss is recorded."""
    _topic(broker, "expires", "a", "b")
    reader = _reader(broker, spark, paths, "expires")
    reader.ingest()
    _produce(broker, _records("expires", "c", "d", "e"))
    admin = quiet_admin(broker.bootstrap)
    for future in admin.delete_records([TopicPartition("expires", 0, 4)]).values():
        future.result()
    for ask in (reader.ingest, reader.find_new_records):
        with pytest.raises(SourceError, match=r"at offset 2, .* begins at 4: .*source.resume_at: {expires: {0: 4}}"):
            ask()
    assert [value for _, value in reader.values()["expires", 0]] == [b"a", b"b"]
    continued = reader.declared(resume_at={("expires", 0): 4})
    assert isinstance(continued.find_new_records(), NewRecords)
    intake = continued.ingest()
    assert (intake.records, intake.lost) == (1, (("expires", 0, 2, 4),))
    assert continued.values() == {("expires", 0): [(0, b"a"), (1, b"b"), (4, b"e")]}
    note = newest_note(paths)
    assert note is not None
    assert note["lost"] == [["expires", 0, 2, 4]]
    assert isinstance(continued.find_new_records(), NoNewRecords)
    decode_batches(Lake(spark, paths))
    check = lost_offsets_result(Lake(spark, paths), dg.AssetKey("change_log"))
    assert not check.passed
    assert check.description is not None
    assert check.description.startswith("`2 offsets expired before they were read, the first in ")
    assert "retention.ms" in check.description
    assert check.metadata["expires/0"].value == "2–3, skipped in batch 2"


def test_a_recreated_topic(broker: LocalBroker, spark: SparkSession, paths: LakePaths) -> None:
    """Recognized by its id, even if the new topic has as many records."""
    _topic(broker, "twice", "a", "b")
    reader = _reader(broker, spark, paths, "twice")
    reader.ingest()
    admin = quiet_admin(broker.bootstrap)  # keep a reference: a garbage-collected client never answers
    admin.delete_topics(["twice"])["twice"].result()
    _wait_until_gone(broker, "twice")
    for ask in (reader.ingest, reader.find_new_records):
        with pytest.raises(SourceError, match=r"has read topic 'twice' .*source.ended: \[twice\]"):
            ask()
    _topic(broker, "twice", "c", "d", "e")
    for ask in (reader.ingest, reader.find_new_records):
        with pytest.raises(
            SourceError, match=r"'twice' was deleted and recreated: .*source.made_anew: {twice: twice@2}"
        ):
            ask()
    continued = reader.declared(made_anew={"twice": "twice@2"})
    continued.ingest()
    decode_batches(Lake(spark, paths))
    # records of the deleted topic that were not read
    check = lost_offsets_result(Lake(spark, paths), dg.AssetKey("change_log"))
    assert (check.description or "").startswith(
        "`a topic was deleted that may have had more records, the first in twice/0: "
    )
    assert check.metadata["twice/0"].value == "from 2 on, if the deleted topic had any, skipped in batch 2"
    assert continued.values() == {
        ("twice", 0): [(0, b"a"), (1, b"b")],
        ("twice@2", 0): [(0, b"c"), (1, b"d"), (2, b"e")],
    }


def _wait_until_gone(broker: LocalBroker, topic: str) -> None:
    admin, until = quiet_admin(broker.bootstrap), time.monotonic() + 10
    while topic in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_missing_topic(broker: LocalBroker, spark: SparkSession, paths: LakePaths) -> None:
    reader = _reader(broker, spark, paths, "nobody")
    for ask in (reader.ingest, reader.find_new_records):
        with pytest.raises(SourceError, match=r"has no topic 'nobody', which source.topics names"):
            ask()
    assert not Path(paths.home, "raw_topic_snapshot").exists()
    by_pattern = replace(reader.source, selection=TopicSelection(pattern="nobody.*"))
    assert isinstance(by_pattern.find_new_records(None), NoNewRecords)


# ---- progress of the lake


def test_without_batch_commits_the_lake_reads_its_progress_from_records(
    broker: LocalBroker, spark: SparkSession, paths: LakePaths
) -> None:
    """Delta removes old commits after a month, and a lake may have been filled from files before."""
    _topic(broker, "noteless", "a", "b", "c")
    reader = _reader(broker, spark, paths, "noteless")
    reader.ingest({"noteless": {"0": 2}})
    for commit in Path(paths.table("raw_topic_snapshot"), "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            action.get("commitInfo", {}).pop("userMetadata", None)
        commit.write_text("\n".join(map(json.dumps, actions)))
        commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)
    assert newest_note(paths) is None
    assert reader.ingest().records == 1
    assert [value for _, value in reader.values()["noteless", 0]] == [b"a", b"b", b"c"]


@pytest.mark.usefixtures("spark")
def test_doctor_looks_at_the_newest_records(broker: LocalBroker, paths: LakePaths) -> None:
    """`cdc-pipeline doctor` names the dialect of each topic, or the topic that has none, and ingests nothing."""
    _topic(broker, "sound", row_change("INSERT", "t", 1, {"id": "1", "v": "a"}), watermark(2))
    _topic(broker, "other", "{}", "[1]")
    in_default_mode = json.loads(row_change("INSERT", "t", 1, {"id": "1"}))
    del in_default_mode["_tidb"]
    in_default_mode["es"] += 1  # no whole second
    _topic(broker, "default-mode", json.dumps(in_default_mode))

    def findings(*topics: str) -> dict[str, Finding]:
        source = KafkaSource(type="kafka", bootstrap_servers=broker.bootstrap, topics=list(topics))
        component = CdcPipeline(name="p", source=source, lake=paths.root)
        return {finding.name: finding for finding in examine(DeclaredPipeline(component, component.build_defs()))}

    found = findings("sound")
    assert [finding.text for finding in found.values() if not finding.passed] == []
    assert found["dialects"].text == "sound: ticdc"
    assert "default-mode: ticdc without TSOs (enable-tidb" in findings("default-mode")["dialects"].text
    # as a run decodes them: compressed values, and a sender of Canal's format without batch numbers
    compressed = row_change("INSERT", "t", 1, {"id": "1", "v": "a" * 100}).encode()
    create_topics(broker.bootstrap, {"compressed": 1})
    _produce(broker, [replace(_records("compressed", "x")[0], value=lz4(compressed))])
    assert findings("compressed")["dialects"].text == "compressed: ticdc"
    _topic(broker, "sender", json.dumps({**in_default_mode, "es": in_default_mode["es"] // 1000 * 1000}))
    assert findings("sender")["dialects"].text == "sender: canal"
    wrong = findings("sound", "other")["dialects"]
    assert not wrong.passed
    assert wrong.text.startswith("the newest records would be dead letters: other (rule ")
    assert not Path(paths.table("raw_topic_snapshot")).exists()
    assert "has no topic 'sounds'" in findings("sounds")["source"].text
    assert "similar name: sound)" in findings("sounds")["source"].text


def test_group_offsets_for_dashboards(broker: LocalBroker, spark: SparkSession, paths: LakePaths) -> None:
    _topic(broker, "shown", "a", "b")
    reader = _reader(broker, spark, paths, "shown")
    replace(reader.source, publish_group="dashboard").ingest(Lake(spark, paths), RunContext("run", lambda line: None))
    admin = quiet_admin(broker.bootstrap)
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("dashboard")]).values()
    assert [(position.topic, position.offset) for position in future.result().topic_partitions] == [("shown", 2)]


def test_a_group_that_the_broker_refuses_does_not_stop_the_run(
    broker: LocalBroker, spark: SparkSession, paths: LakePaths
) -> None:
    """It has a running consumer."""
    _topic(broker, "busy", "a", "b")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "taken", "log_level": 0})
    consumer.subscribe(["busy"])
    until = time.monotonic() + 60
    while not consumer.assignment():
        consumer.poll(0.2)
        assert time.monotonic() < until
    lines: list[str] = []
    reader = _reader(broker, spark, paths, "busy")
    intake = replace(reader.source, publish_group="taken").ingest(Lake(spark, paths), RunContext("run", lines.append))
    consumer.close()
    assert intake.records == 2
    assert [line[:52] for line in lines if "publish_group" in line] == [
        "publish_group 'taken': its offsets are not set: the "
    ]


def test_timestamps_that_spark_cannot_read(
    broker: LocalBroker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer's clock in nanoseconds: Spark's source fails, so that the client reads these records."""
    monkeypatch.setattr("cdc_pipeline.sources.kafka.source.MOST_BY_CLIENT", 4)
    # brokers before Kafka 4.0 accept any timestamp by default
    create_topics(broker.bootstrap, {"nano": 2}, {"message.timestamp.after.max.ms": str(2**63 - 1)})
    values = [row_change("INSERT", "t", 2, {"id": str(number)}, key=["id"]) for number in range(9)]
    times = [EPOCH_MS * 10**6 if number == 3 else EPOCH_MS * 10**3 if number == 7 else EPOCH_MS for number in range(9)]
    records = [_records("nano", value, timestamp_ms=time) for value, time in zip(values, times, strict=True)]
    _produce(broker, [record for sent in records for record in sent])
    _produce(broker, _records("nano", watermark(3), timestamp_ms=EPOCH_MS))
    _produce(broker, _records("nano", watermark(3), partition=1, timestamp_ms=EPOCH_MS * 10**6))
    # the word in a path does not make an error one of the broker
    paths = LakePaths(str(tmp_path / "kafka"), "p")
    reader = _reader(broker, spark, paths, "nano")
    report = ingest(spark, paths, reader.source)
    assert [entry.rows for entry in report.mirrors] == [9]
    assert reader.values()["nano", 0] == [(n, text.encode()) for n, text in enumerate([*values, watermark(3)])]
    raw = spark.read.format("delta").load(paths.table("raw_topic_snapshot"))
    found = raw.selectExpr("partition", "offset", "coalesce(timestamp_ms, unix_millis(timestamp)) AS ms").collect()
    assert {(row["partition"], row["offset"]): row["ms"] for row in found} == {
        **{(0, number): time for number, time in enumerate([*times, EPOCH_MS])},
        (1, 0): EPOCH_MS * 10**6,
    }
    assert raw.where("timestamp IS NULL").count() == 3
    assert isinstance(reader.find_new_records(), NoNewRecords)
    warnings = validate_table(Lake(spark, paths), "change_log", [1, 100], 9).warnings
    assert [(breach.rule, breach.count, sorted(breach.examples)) for breach in warnings] == [
        ("timestamp_is_known", 2, ["nano/0@3", "nano/0@7"])
    ]


def test_a_tick_at_200_partitions(broker: LocalBroker, spark: SparkSession, paths: LakePaths) -> None:
    create_topics(broker.bootstrap, {"wide": 200})
    _produce(broker, [record for number in range(200) for record in _records("wide", "x", partition=number)])
    reader = _reader(broker, spark, paths, "wide")
    reader.find_new_records()  # excludes the first connection of the process
    started = time.monotonic()
    news = reader.find_new_records()
    spent = time.monotonic() - started
    assert isinstance(news, NewRecords)
    assert news.records == 200
    assert spent < _TICK_SECONDS
