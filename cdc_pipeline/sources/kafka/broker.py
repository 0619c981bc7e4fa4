"""Reads a broker's metadata: topics, their ids, and the first and end offset of each partition.

Uses confluent-kafka and no Spark, because the sensor calls it every 30 seconds. A run calls it before it plans its batches.
The topic id (KIP-516) detects a topic that was deleted and recreated.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from cdc_pipeline.errors import SourceError, TransientError, redact
from cdc_pipeline.sources.kafka.client_settings import ClientSettings

TIMEOUT_SECONDS = 15.0
"""Timeout of a request, in seconds. Dagster's timeout of a sensor is 60 s."""
_FIRST_TRY_SECONDS = 1.0
_GROUP = "spark-kafka-relation-cdc-pipeline"
"""With Spark's prefix, to which brokers may grant rights. Its offsets are neither read nor set."""
_REFUSALS = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError._INVALID_ARG,
    }
)
"""Error codes for which a retry cannot succeed."""
_REFUSED_CONNECTION = re.compile(
    r"SSL alert number|certificate verify failed|connecting to a PLAINTEXT broker listener"
)
"""Texts of a `_TRANSPORT` error that no retry can cure: a rejected certificate or the wrong protocol. Depending on when it
detects the problem, librdkafka reports `_TRANSPORT` or `_SSL`."""
_UNREACHABLE = re.compile(
    r"OAUTHBEARER token: .*(Could not|Failed to connect|[Tt]imed out|Timeout|reset by peer|Empty reply|refused)"
)
"""Texts of an authentication error caused by an unreachable token endpoint: a retry may succeed."""
_HINTS = {
    "SSL alert number": "the broker requires a client certificate that it trusts: set certificate and key of "
    "source.security",
    "connecting to a PLAINTEXT": "source.security.protocol does not match the listener of this port",
}
"""What to do, by a part of the error's text."""

_TEMPORARY = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
"""Error codes that a broker returns while it creates a topic or moves a partition leader."""
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class BrokerPartition:
    """The readable offsets of a partition."""

    first: int
    end: int
    """Exclusive. The last stable offset, at which the oldest open transaction begins; with `read_uncommitted` the high
    watermark."""
    high_watermark: int
    """Exclusive end of all records; at least `end`."""


@dataclass(frozen=True)
class BrokerTopic:
    """A topic of the broker."""

    topic_id: str
    partitions: Mapping[int, BrokerPartition]
    """By partition number."""


class Broker:
    """An admin client of a broker.

    Raises SourceError if the settings are invalid or the broker rejects the client, TransientError if it does not answer.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        # bounded: a client without connection reports an error per attempt
        self._errors: deque[KafkaError] = deque(maxlen=50)
        self._isolation = (
            IsolationLevel.READ_UNCOMMITTED if settings.reads_uncommitted else IsolationLevel.READ_COMMITTED
        )
        try:
            settings.java()  # the sensor fails with the same error as a run if Spark's settings are invalid
            # log_level 0: errors go to the callback only, not to standard error
            config: dict[str, Any] = {
                "log_level": 0,
                "socket.timeout.ms": 10_000,
                **settings.librdkafka(),
                "error_cb": self._errors.append,
            }
            self._config = config
            self._admin: Any = AdminClient(config)
        except (SourceError, KafkaException, ValueError, TypeError) as error:
            raise SourceError(f"the settings of {self._name} are invalid: {self._message(error)}") from None

    @property
    def _name(self) -> str:
        return f"the Kafka broker {self._settings.bootstrap_servers}"

    def topics(self, names: Iterable[str] | None, pattern: str | None) -> dict[str, BrokerTopic]:
        """The existing topics that are in `names` or fully match `pattern`, by name. Excludes internal topics."""
        existing = self._topic_names()
        wanted = set(names or ())
        chosen = [name for name in existing if name in wanted or (pattern is not None and re.fullmatch(pattern, name))]
        if not chosen:
            return {}
        with self._converted_errors():
            found = {
                name: future.result(timeout=TIMEOUT_SECONDS)
                for name, future in self._admin.describe_topics(TopicCollection(chosen)).items()
            }
        partitions = [(name, partition.id) for name, topic in found.items() for partition in topic.partitions]
        spec: Any = OffsetSpec
        first = self._offsets(dict.fromkeys(partitions, spec.earliest()))
        latest = dict.fromkeys(partitions, spec.latest())
        # in this order: a transaction is open if the end is lower although it is requested later
        high_watermark = self._offsets(latest, IsolationLevel.READ_UNCOMMITTED)
        end = self._offsets(latest)
        return {
            name: BrokerTopic(
                str(topic.topic_id),
                {
                    key[1]: BrokerPartition(first[key], end[key], max(end[key], high_watermark[key]))
                    for key in ((name, partition.id) for partition in topic.partitions)
                },
            )
            for name, topic in sorted(found.items())
        }

    def offsets_at(
        self, partitions: Iterable[tuple[str, int]], time_ms: int, *, uncommitted: bool = False
    ) -> dict[tuple[str, int], int | None]:
        """For each partition the first offset with a record timestamp of `time_ms` or later; None if there is none.

        `uncommitted`: also searches after the last stable offset.
        """
        specs = {partition: OffsetSpec.for_timestamp(time_ms) for partition in partitions}
        found = self._offsets(specs, IsolationLevel.READ_UNCOMMITTED if uncommitted else None)
        return {partition: offset if offset >= 0 else None for partition, offset in found.items()}

    def read(self, topic: str, partition: int, first: int, end: int) -> Iterator[Message]:
        """The records of a partition between the offsets, `end` exclusive. For few: each passes through Python."""
        settings = {"group.id": _GROUP, "enable.auto.commit": False, "enable.partition.eof": True}
        settings["auto.offset.reset"] = "error"  # not on from the end if records have expired
        consumer = Consumer({**self._config, **settings, "isolation.level": self._isolation.name.lower()})
        try:
            with self._converted_errors():
                consumer.assign([TopicPartition(topic, partition, first)])
                while (message := consumer.poll(TIMEOUT_SECONDS)) is not None:
                    error = message.error()
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    if error is not None or (message.offset() or 0) >= end:
                        return
                    yield message
            raise TransientError(f"{self._name} does not answer", topic=topic, partition=partition)
        finally:
            consumer.close()

    def publish(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Sets the offsets of a consumer group, for lag dashboards. The pipeline never reads them.

        Retries until the timeout if a partition has an error: a broker returns such errors while it initializes its first
        group.
        """
        partitions = [
            TopicPartition(topic, partition, offset) for (topic, partition), offset in sorted(offsets.items())
        ]
        deadline = time.monotonic() + TIMEOUT_SECONDS
        with self._converted_errors():
            while partitions:
                request = [ConsumerGroupTopicPartitions(group, partitions)]
                (future,) = self._admin.alter_consumer_group_offsets(request).values()
                results = future.result(timeout=TIMEOUT_SECONDS).topic_partitions
                error = next((result.error for result in results if result.error), None)
                if error is None:
                    return
                if time.monotonic() > deadline:
                    raise KafkaException(error)
                time.sleep(_PAUSE_SECONDS)

    def _topic_names(self) -> list[str]:
        """The names of all topics except internal ones.

        Retries with increasing timeouts, so that a refusal that the error callback reports is raised early.
        """
        self._errors.clear()
        deadline, timeout = time.monotonic() + TIMEOUT_SECONDS, _FIRST_TRY_SECONDS
        while True:
            try:
                found = self._admin.list_topics(timeout=timeout)
                return sorted(name for name in found.topics if not name.startswith("__"))
            except KafkaException as error:
                self._admin.poll(0)
                remaining = deadline - time.monotonic()
                if any(_is_refusal(found) for found in self._errors) or remaining <= 0:
                    raise self._failure(error) from None
                timeout = min(2 * timeout, max(remaining, _FIRST_TRY_SECONDS))

    def similar_topics(self, name: str) -> list[str]:
        """Up to three existing topics whose names resemble the name of a missing one, the closest first."""
        return get_close_matches(name, self._topic_names())

    def _offsets(
        self, specs: Mapping[tuple[str, int], Any], isolation: IsolationLevel | None = None
    ) -> dict[tuple[str, int], int]:
        """The offset of each partition for its OffsetSpec. Retries temporary errors until the timeout.

        `isolation`: None for that of the settings.
        """
        isolation = self._isolation if isolation is None else isolation
        request = {TopicPartition(topic, partition): spec for (topic, partition), spec in specs.items()}
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            with self._converted_errors():
                futures = self._admin.list_offsets(request, isolation_level=isolation, request_timeout=TIMEOUT_SECONDS)
                try:
                    return {
                        (partition.topic, partition.partition): future.result(timeout=TIMEOUT_SECONDS).offset
                        for partition, future in futures.items()
                    }
                except KafkaException as error:
                    if error.args[0].code() not in _TEMPORARY or time.monotonic() > deadline:
                        raise
            time.sleep(_PAUSE_SECONDS)

    @contextlib.contextmanager
    def _converted_errors(self) -> Iterator[None]:
        """Converts errors of confluent-kafka to SourceError or TransientError."""
        self._errors.clear()
        try:
            yield
        except (KafkaException, TimeoutError) as error:
            self._admin.poll(0)
            raise self._failure(error) from None

    def _failure(self, error: BaseException) -> SourceError | TransientError:
        """SourceError if the broker rejects the client, else TransientError."""
        errors = list(self._errors)
        if error.args and isinstance(error.args[0], KafkaError):
            errors.append(error.args[0])
        if (refusal := next(filter(_is_refusal, errors), None)) is not None:
            hint = next((f"; {hint}" for text, hint in _HINTS.items() if text in refusal.str()), "")
            return SourceError(f"{self._name} refuses the client: {self._message(refusal)}{hint}")
        causes = [found for found in self._errors if found.code() != KafkaError._ALL_BROKERS_DOWN]
        if causes or not self._errors:
            return TransientError(f"{self._name} does not answer: {self._message(causes[0] if causes else error)}")
        protocol = self._settings.librdkafka().get("security.protocol", "PLAINTEXT")
        return TransientError(
            f"{self._name} accepts connections and closes them without an error. Check that source.security.protocol "
            f"{protocol} matches the listener of this port"
        )

    def _message(self, error: object) -> str:
        """The error's text without secrets."""
        found = error.args[0] if isinstance(error, KafkaException) and error.args else error
        return redact(found.str() if isinstance(found, KafkaError) else str(found), self._settings.secrets)


def _is_refusal(error: KafkaError) -> bool:
    text = error.str()
    if error.code() == KafkaError._TRANSPORT:
        return _REFUSED_CONNECTION.search(text) is not None
    return error.code() in _REFUSALS and _UNREACHABLE.search(text) is None
