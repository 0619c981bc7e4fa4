"""Kafka transactions on a live broker: the mirrors have the committed rows, and positions advance over everything else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from cdc_pipeline.assets.raw import raw_asset
from cdc_pipeline.checks.streams import open_transactions_result
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.pipeline import OWN_SPARK, Pipeline
from cdc_pipeline.sources.kafka.broker import Broker, BrokerPartition
from cdc_pipeline.sources.kafka.client_settings import ClientSettings
from cdc_pipeline.sources.kafka.positions import TopicSelection
from cdc_pipeline.sources.kafka.source import KafkaTopics
from cdc_pipeline.sources.raw_batches import newest_note
from cdc_pipeline.sources.source import Intake, NewRecords, NoNewRecords, OpenTransaction, RunContext
from cdc_pipeline.spark.session import SparkLakehouse
from cdc_pipeline_tests.local_kafka.broker import LocalBroker
from cdc_pipeline_tests.local_kafka.clients import SILENT
from cdc_pipeline_tests.local_kafka.feed import create_topics
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.messages import canal

_TOPIC = "orders"
_KEY = dg.AssetKey("raw_topic_snapshot")
_SECONDS = 20.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("kafka")) as found:
        create_topics(found.bootstrap, {_TOPIC: 3, "few": 1})
        yield found


class _Writer:
    """A transactional producer of rows of `db.orders`."""

    def __init__(self, broker: LocalBroker, name: str, topic: str = _TOPIC) -> None:
        self._topic = topic
        settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "transaction.timeout.ms": 600_000}
        self._producer = Producer(settings, logger=SILENT)
        self._producer.init_transactions(_SECONDS)

    def begin(self, *rows: tuple[int, int], sent_ms: int = 0) -> _Writer:
        """Begins a transaction that inserts (partition, id) rows. `sent_ms`: their timestamp, 0 for now."""
        self._producer.begin_transaction()
        for partition, number in rows:
            value = canal("INSERT", "orders", number, [{"id": str(number)}], types={"id": "bigint"}, key=["id"])
            self._producer.produce(self._topic, value.encode(), partition=partition, timestamp=sent_ms)
        assert self._producer.flush(_SECONDS) == 0
        return self

    def commit(self) -> None:
        self._producer.commit_transaction(_SECONDS)

    def abort(self) -> None:
        self._producer.abort_transaction(_SECONDS)


def _source(broker: LocalBroker, topic: str = _TOPIC, most: int = 1000, **options: str) -> KafkaTopics:
    return KafkaTopics(ClientSettings(broker.bootstrap, options), TopicSelection((topic,)), most)


def _wait_for(broker: LocalBroker, *partitions: tuple[int, int], topic: str = _TOPIC) -> None:
    """Waits until the partitions have these last stable offsets and ends. A broker ends a transaction after its reply."""
    expected = {number: BrokerPartition(0, *offsets) for number, offsets in enumerate(partitions)}
    asked, until = Broker(ClientSettings(broker.bootstrap, {})), time.monotonic() + _SECONDS
    while (found := asked.topics([topic], None)[topic].partitions) != expected:
        assert time.monotonic() < until, found
        time.sleep(0.05)


class _Lake:
    def __init__(self, spark: SparkSession, folder: Path, source: KafkaTopics) -> None:
        self.spark, self.paths, self.source = spark, LakePaths(str(folder), "p"), source

    def ingest(self) -> Intake:
        return self.source.ingest(Lake(self.spark, self.paths), RunContext("run", lambda line: None))

    def find_new_records(self) -> NewRecords | NoNewRecords:
        return self.source.find_new_records(newest_note(self.paths))

    def ids(self) -> set[int]:
        """Makes a cut and returns the keys of its mirror."""
        ingest(self.spark, self.paths, self.source)
        frame = self.spark.read.format("delta").load(self.paths.mirror(TableName("db", "orders")))
        rows = [row["id"] for row in frame.collect()]
        assert len(set(rows)) == len(rows)
        return set(rows)


def test_committed_aborted_and_open_transactions(broker: LocalBroker, spark: SparkSession, tmp_path: Path) -> None:
    first, second = _Writer(broker, "first"), _Writer(broker, "second")
    first.begin((0, 1), (1, 2)).commit()
    first.begin((0, 3), (0, 3), (1, 4)).abort()
    second.begin((0, 5), (2, 6))  # stays open
    first.begin((0, 7), (1, 8)).commit()
    # partition 0: 1, commit, 3, 3, abort, 5, 7, commit. 1: 2, commit, 4, abort, 8, commit. 2: 6
    _wait_for(broker, (5, 8), (6, 6), (0, 1))
    lake = _Lake(spark, tmp_path, _source(broker))

    intake = lake.ingest()
    assert (intake.batches, intake.records, lake.ids()) == ((1,), 3, {1, 2, 8})
    assert [(span.partition, span.first, span.last) for span in intake.ranges] == [(0, 0, 4), (1, 0, 5)]
    assert intake.positions["next"] == {_TOPIC: {"0": 5, "1": 6, "2": 0}}
    assert intake.notes == {}  # decoding has to find out which of the offsets have records
    assert intake.open_transactions == (OpenTransaction(_TOPIC, 0, 5, 8), OpenTransaction(_TOPIC, 2, 0, 1))
    check = open_transactions_result(intake, _KEY)
    assert (check.passed, check.metadata["orders/0"].value) == (True, "last stable offset 5, end offset 8")

    # an open transaction requests no run, also while records arrive after its first one
    first.begin((0, 9)).abort()
    _wait_for(broker, (5, 10), (6, 6), (0, 1))
    reason = lake.find_new_records()
    assert isinstance(reason, NoNewRecords)
    assert (
        "transactions hold back orders/0: last stable offset 5, end offset 10; orders/2: last stable" in reason.reason
    )
    assert lake.ingest().batches == ()

    second.commit()
    _wait_for(broker, (11, 11), (6, 6), (2, 2))
    news = lake.find_new_records()
    assert isinstance(news, NewRecords)
    assert news.until == {_TOPIC: {"0": 11, "1": 6, "2": 2}}
    intake = lake.ingest()
    assert (intake.records, intake.open_transactions, lake.ids()) == (3, (), {1, 2, 5, 6, 7, 8})

    # without any visible record
    first.begin((1, 10)).abort()
    _wait_for(broker, (11, 11), (8, 8), (2, 2))
    assert isinstance(lake.find_new_records(), NewRecords)
    intake = lake.ingest()
    assert (intake.batches, intake.records, lake.ids()) == ((3,), 0, {1, 2, 5, 6, 7, 8})
    assert intake.positions["next"] == {_TOPIC: {"0": 11, "1": 8, "2": 2}}
    assert isinstance(lake.find_new_records(), NoNewRecords)

    # batches of a few offsets, some with control records alone
    small = _Lake(spark, tmp_path / "small", _source(broker, most=6))
    intake = small.ingest()
    assert (len(intake.batches), intake.records) == (4, 6)
    assert intake.positions["next"] == {_TOPIC: {"0": 11, "1": 8, "2": 2}}


def test_uncommitted_records_are_read_on_request_only(broker: LocalBroker, spark: SparkSession, tmp_path: Path) -> None:
    """A lake that has read beyond the last stable offset continues with read_committed."""
    an_hour_ago = int(time.time() * 1000) - 3_600_000
    writer = _Writer(broker, "third", "few").begin((0, 1), sent_ms=an_hour_ago)
    _Writer(broker, "fourth", "few").begin((0, 2)).abort()
    _wait_for(broker, (0, 3), topic="few")
    lake = _Lake(spark, tmp_path, _source(broker, "few", **{"isolation.level": "read_uncommitted"}))
    result = dg.materialize(
        [raw_asset(Pipeline("p", lake.source, str(tmp_path)))],
        resources={OWN_SPARK: SparkLakehouse(driver_memory="1g")},
    )
    (evaluation,) = result.get_asset_check_evaluations()
    assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "isolation.level to read_uncommitted" in (evaluation.description or "")
    assert lake.ids() == {1, 2}

    lake.source = _source(broker, "few")
    assert isinstance(lake.find_new_records(), NoNewRecords)
    intake = lake.ingest()
    assert intake.batches == ()
    assert intake.open_transactions == (OpenTransaction("few", 0, 0, 3, is_overdue=True),)
    writer.abort()
    _wait_for(broker, (4, 4), topic="few")
    assert isinstance(lake.find_new_records(), NewRecords)
    assert lake.ingest().records == 0
