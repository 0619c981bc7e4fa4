"""What a broker has on offer: topics, their ids, and the first and next offset of each partition.

Metadata only, through confluent-kafka and without Spark: a sensor asks every half a minute, and a run before it plans its
batches. A topic's id (KIP-516) tells a topic from another one of the same name that was made after it was deleted.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from cdc_pipeline.errors import SourceError, TransientError, without

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cdc_pipeline.sources.kafka.client_settings import ClientSettings

PATIENCE_SECONDS = 15.0
"""How long a broker may take to answer: well inside the minute that Dagster gives a sensor."""
_FIRST_TRY_SECONDS = 1.0
_REFUSALS = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError._INVALID_ARG,
    }
)
"""Errors that no repetition cures."""
_REFUSED_CONNECTION = re.compile(
    r"SSL alert number|certificate verify failed|connecting to a PLAINTEXT broker listener"
)
"""What is said of a client whose certificate or whose protocol the broker does not take, or which does not trust the
broker's, in the text of a lost connection: librdkafka gives that code or _SSL, by the moment at which it notices."""
_UNREACHABLE = re.compile(
    r"OAUTHBEARER token: .*(Could not|Failed to connect|[Tt]imed out|Timeout|reset by peer|Empty reply|refused)"
)
"""A token that could not be asked for, which is no refusal."""
_HINTS = {
    "SSL alert number": "the broker asks for a certificate of the client that it trusts: ssl.certificate.location and "
    "ssl.key.location say which",
    "connecting to a PLAINTEXT": "security.protocol is that of another port",
}

_PASSING = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
"""What a broker says for a moment, of a topic that is just being made or of a partition that moves."""
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class OfferedPartition:
    """The offsets that can be read: from `first` up to before `end`."""

    first: int
    end: int


@dataclass(frozen=True)
class OfferedTopic:
    """A topic as the broker has it now."""

    topic_id: str
    partitions: Mapping[int, OfferedPartition]


class Broker:
    """A connection to a broker's metadata. Raises TransientError where it does not answer, SourceError where it refuses."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        # the last ones: a client that is not connected reports an error per try, as long as it lives
        self._errors: deque[KafkaError] = deque(maxlen=50)
        level = settings.options.get("isolation.level", settings.options.get("kafka.isolation.level"))
        self._isolation = (
            IsolationLevel.READ_COMMITTED if level == "read_committed" else IsolationLevel.READ_UNCOMMITTED
        )
        try:
            settings.java()  # what Spark could not be told is an error for the sensor too, and the same one
            # log_level 0: what is wrong comes by the callback, and not to standard error as well
            settings_of_client: dict[str, Any] = {
                **settings.librdkafka(),
                "error_cb": self._errors.append,
                "log_level": 0,
                "socket.timeout.ms": 10_000,
            }
            self._admin: Any = AdminClient(settings_of_client)
        except (SourceError, KafkaException, ValueError, TypeError) as error:
            raise SourceError(f"the settings of {self._name} are refused: {self._said(error)}") from None

    @property
    def _name(self) -> str:
        return f"the Kafka broker {self._settings.bootstrap_servers}"

    def topics(self, names: Iterable[str] | None, pattern: str | None) -> dict[str, OfferedTopic]:
        """The topics of these names that there are, or those whose whole name the pattern matches; without internal ones."""
        there = self._topic_names()
        wanted = set(names or ())
        chosen = [name for name in there if name in wanted or (pattern is not None and re.fullmatch(pattern, name))]
        if not chosen:
            return {}
        with self._asking():
            found = {
                name: future.result(timeout=PATIENCE_SECONDS)
                for name, future in self._admin.describe_topics(TopicCollection(chosen)).items()
            }
        partitions = [(name, partition.id) for name, topic in found.items() for partition in topic.partitions]
        spec: Any = OffsetSpec
        first = self._offsets(dict.fromkeys(partitions, spec.earliest()))
        end = self._offsets(dict.fromkeys(partitions, spec.latest()))
        return {
            name: OfferedTopic(
                str(topic.topic_id),
                {
                    partition.id: OfferedPartition(first[name, partition.id], end[name, partition.id])
                    for partition in topic.partitions
                },
            )
            for name, topic in sorted(found.items())
        }

    def offsets_at(self, partitions: Iterable[tuple[str, int]], time_ms: int) -> dict[tuple[str, int], int | None]:
        """For each partition the first offset whose record is of that time or later; None where there is none."""
        found = self._offsets({place: OffsetSpec.for_timestamp(time_ms) for place in partitions})
        return {place: offset if offset >= 0 else None for place, offset in found.items()}

    def publish(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Sets a consumer group's offsets, for dashboards of lag. Nothing here ever reads them.

        The answer may be good as a whole and have an error for each partition: so it is while the broker makes ready for
        its first group.
        """
        places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in sorted(offsets.items())]
        end = time.monotonic() + PATIENCE_SECONDS
        with self._asking():
            while places:
                asked = [ConsumerGroupTopicPartitions(group, places)]
                (future,) = self._admin.alter_consumer_group_offsets(asked).values()
                answers = future.result(timeout=PATIENCE_SECONDS).topic_partitions
                error = next((place.error for place in answers if place.error), None)
                if error is None:
                    return
                if time.monotonic() > end:
                    raise KafkaException(error)
                time.sleep(_PAUSE_SECONDS)

    def _topic_names(self) -> list[str]:
        """Asked for longer and longer: an answer that never comes has its reason in the callback's errors."""
        self._errors.clear()
        end, patience = time.monotonic() + PATIENCE_SECONDS, _FIRST_TRY_SECONDS
        while True:
            try:
                found = self._admin.list_topics(timeout=patience)
                return sorted(name for name in found.topics if not name.startswith("__"))
            except KafkaException as error:
                self._admin.poll(0)
                left = end - time.monotonic()
                if any(_is_refusal(found) for found in self._errors) or left <= 0:
                    raise self._failure(error) from None
                patience = min(2 * patience, max(left, _FIRST_TRY_SECONDS))

    def _offsets(self, asked: Mapping[tuple[str, int], Any]) -> dict[tuple[str, int], int]:
        places = {TopicPartition(topic, partition): spec for (topic, partition), spec in asked.items()}
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            with self._asking():
                futures = self._admin.list_offsets(
                    places, isolation_level=self._isolation, request_timeout=PATIENCE_SECONDS
                )
                try:
                    return {
                        (place.topic, place.partition): future.result(timeout=PATIENCE_SECONDS).offset
                        for place, future in futures.items()
                    }
                except KafkaException as error:
                    if error.args[0].code() not in _PASSING or time.monotonic() > end:
                        raise
            time.sleep(_PAUSE_SECONDS)

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        self._errors.clear()
        try:
            yield
        except (KafkaException, TimeoutError) as error:
            self._admin.poll(0)
            raise self._failure(error) from None

    def _failure(self, error: BaseException) -> SourceError | TransientError:
        """Terminal where the broker refuses, transient where it does not answer."""
        errors = list(self._errors)
        if error.args and isinstance(error.args[0], KafkaError):
            errors.append(error.args[0])
        if (refusal := next(filter(_is_refusal, errors), None)) is not None:
            hint = next((f"; {hint}" for text, hint in _HINTS.items() if text in refusal.str()), "")
            return SourceError(f"{self._name} refuses: {self._said(refusal)}{hint}")
        telling = [found for found in self._errors if found.code() != KafkaError._ALL_BROKERS_DOWN]
        if telling or not self._errors:
            return TransientError(f"{self._name} does not answer: {self._said(telling[0] if telling else error)}")
        return TransientError(
            f"{self._name} takes connections and closes them without a word: is security.protocol, "
            f"{self._settings.protocol}, that of this port?"
        )

    def _said(self, error: object) -> str:
        found = error.args[0] if isinstance(error, KafkaException) and error.args else error
        return without(found.str() if isinstance(found, KafkaError) else str(found), self._settings.secrets)


def _is_refusal(error: KafkaError) -> bool:
    text = error.str()
    if error.code() == KafkaError._TRANSPORT:
        return _REFUSED_CONNECTION.search(text) is not None
    return error.code() in _REFUSALS and _UNREACHABLE.search(text) is None
