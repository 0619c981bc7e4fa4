"""What the sensor says about new offsets and open transactions, with a broker of fixed answers."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from cdc_pipeline.errors import SourceError
from cdc_pipeline.sources.kafka.broker import BrokerPartition, BrokerTopic
from cdc_pipeline.sources.kafka.client_settings import ClientSettings
from cdc_pipeline.sources.kafka.positions import Positions, TopicPartition, TopicSelection
from cdc_pipeline.sources.kafka.source import KafkaTopics, open_broker
from cdc_pipeline.sources.source import NewRecords, NoNewRecords, OpenTransaction, PartitionLag

_TOPICS = KafkaTopics(ClientSettings("broker:9092", {}), TopicSelection(("t",), made_anew={"t": "t@2"}))


@dataclass
class _Broker:
    """`partitions`: last stable offset and high watermark of each."""

    partitions: list[tuple[int, int]]
    young: dict[TopicPartition, int | None] = field(default_factory=dict)
    """First offset of a record that is younger than the limit."""

    def topics(self, *_: Any) -> dict[str, BrokerTopic]:
        found = {number: BrokerPartition(0, *offsets) for number, offsets in enumerate(self.partitions)}
        return {"t": BrokerTopic("id", found)}

    def similar_topics(self, name: str) -> list[str]:
        return ["tidb_orders"] if name == "tidb-orders" else []

    def offsets_at(
        self, partitions: Iterable[TopicPartition], time_ms: int, *, uncommitted: bool
    ) -> dict[TopicPartition, int | None]:
        assert uncommitted
        return {partition: self.young[partition] for partition in partitions}


def _find(monkeypatch: pytest.MonkeyPatch, broker: _Broker, *positions: int) -> NewRecords | NoNewRecords:
    monkeypatch.setattr("cdc_pipeline.sources.kafka.source.open_broker", lambda settings: broker)
    known = Positions({("t@2", number): offset for number, offset in enumerate(positions)}, {"t@2": "id"})
    return _TOPICS.find_new_records(known.to_note())


def test_an_open_transaction_is_not_new_but_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _find(monkeypatch, _Broker([(5, 9), (3, 3)]), 5, 3)
    assert found == NoNewRecords(
        "nothing new: all 2 partitions are read to their last stable offsets. Open transactions hold back t@2/0: last "
        "stable offset 5, end offset 9",
        (PartitionLag("t", 0, 5, 0), PartitionLag("t", 1, 3, 0)),
    )
    found = _find(monkeypatch, _Broker([(0, 1)] * 5), *[0] * 5)
    assert isinstance(found, NoNewRecords)
    assert found.reason.endswith("t@2/2: last stable offset 0, end offset 1 and 2 more partitions")
    assert _find(monkeypatch, _Broker([(5, 5)]), 5) == NoNewRecords(
        "nothing new: all 1 partitions are read to their ends", (PartitionLag("t", 0, 5, 0),)
    )


def test_the_range_ends_at_the_last_stable_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _find(monkeypatch, _Broker([(7, 9), (3, 8)]), 5, 3)
    assert isinstance(found, NewRecords)
    assert (found.records, found.until) == (2, {"t@2": {"0": 7, "1": 3}})
    assert found.lags == (PartitionLag("t", 0, 7, 2), PartitionLag("t", 1, 3, 0))
    # later records of an open transaction do not change the request
    assert _find(monkeypatch, _Broker([(7, 90), (3, 80)]), 5, 3) == found


@pytest.mark.parametrize(("young", "is_overdue"), [(None, True), (6, True), (5, False), (2, False)])
def test_the_age_of_an_open_transaction(young: int | None, *, is_overdue: bool) -> None:
    held = OpenTransaction("t@2", 0, 5, 9)
    broker: Any = _Broker([(5, 9)], {("t", 0): young})
    (found,) = _TOPICS._with_age(broker, (held,))
    assert found == OpenTransaction("t@2", 0, 5, 9, is_overdue)


def test_without_the_extra_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """`None` in sys.modules makes the import fail as if the package were missing."""
    monkeypatch.delitem(sys.modules, "cdc_pipeline.sources.kafka.broker", raising=False)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(SourceError, match=r"pip install 'cdc_pipeline\[kafka\]'"):
        open_broker(ClientSettings("b:9092", {}))


@pytest.mark.parametrize(
    ("topic", "hint"),
    [("tidb-orders", " (topics with a similar name: tidb_orders)"), ("nobody", "")],
)
def test_a_missing_topic_has_a_hint(topic: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_pipeline.sources.kafka.source.open_broker", lambda _: _Broker([(0, 0)]))
    source = KafkaTopics(ClientSettings("broker:9092", {}), TopicSelection((topic,)))
    with pytest.raises(SourceError, match=r"has no topic") as raised:
        source.find_new_records(None)
    assert f"create it or remove it from the list{hint} [topic {topic}]" in str(raised.value)
