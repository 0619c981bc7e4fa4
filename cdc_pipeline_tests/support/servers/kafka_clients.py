"""Kafka clients of the tests."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from cdc_pipeline_tests.local_kafka.clients import SILENT, quiet_admin
from cdc_pipeline_tests.local_kafka.feed import Record, create_topics, produce

SECONDS = 20.0


def filled(bootstrap: str, topic: str, values: list[str], partitions: int = 1) -> str:
    """Creates a topic, produces the values to its partition 0, and returns its name."""
    create_topics(bootstrap, {topic: partitions})
    records = [Record(topic, 0, offset, 1_000 + offset, None, value.encode()) for offset, value in enumerate(values)]
    assert sum(len(part) for part in produce(bootstrap, records)) == len(values)
    return topic


def consumed(
    bootstrap: str,
    topic: str,
    count: int,
    settings: Mapping[str, Any] | None = None,
    partition: int = 0,
    seconds: float = SECONDS,
) -> list[Message]:
    """The first `count` available messages of a partition.

    Raises KafkaException on the client's first error, AssertionError if there are fewer messages within `seconds`.
    """
    errors: list[KafkaException] = []
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "error_cb": lambda error: errors.append(KafkaException(error)),
            **(settings or {}),
        },
        logger=SILENT,
    )
    messages: list[Message] = []
    until = time.monotonic() + seconds
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while len(messages) < count and time.monotonic() < until:
            message = consumer.poll(0.1)
            if errors:
                raise errors[0]
            if message is not None:
                if message.error() is not None:
                    raise KafkaException(message.error())
                messages.append(message)
    finally:
        consumer.close()
    assert len(messages) == count
    return messages


def values(messages: list[Message]) -> list[str]:
    return [(message.value() or b"").decode() for message in messages]


def topic_names(bootstrap: str) -> set[str]:
    return set(quiet_admin(bootstrap).list_topics(timeout=SECONDS).topics)
