"""Settings of a source's topics: which are read, where they start, and how to continue after lost offsets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc_pipeline.sources.kafka.positions import TopicPartition

CLOCK_SKEW_MS = 10 * 60 * 1000
"""With `commit_tso`, reading starts this much before the TSO's time. A message is sent after its commit, but another machine
sets its timestamp. Extra records are harmless."""


@dataclass(frozen=True)
class Start:
    """Where an empty lake begins to read."""

    at: Literal["earliest", "latest", "time", "offsets"] = "earliest"
    """`time`: for the settings `timestamp` and `commit_tso`."""
    time_ms: int = 0
    """With `time`: milliseconds since 1970."""
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    """With `offsets`: the first offset of each partition, by the broker's topic name."""


@dataclass(frozen=True)
class TopicSelection:
    """Topics to read, and how to continue where the lake's next offset cannot be read."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """A regular expression for complete topic names."""
    start: Start = Start()
    made_anew: Mapping[str, str] = field(default_factory=dict)
    """Recreated topic → its new name in the lake, so that a position always identifies one record."""
    resume_at: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where records have expired: the offset to continue at, by topic name in the lake."""
    ended: frozenset[str] = frozenset()
    """Names in the lake of topics that are no longer read."""

    def lake_name(self, topic: str) -> str:
        """The topic's name in the lake."""
        return self.made_anew.get(topic, topic)

    @property
    def broker_names(self) -> dict[str, str]:
        """Name in the lake of a recreated topic → its name on the broker."""
        return {name: source for source, name in self.made_anew.items()}

    @property
    def ended_in_lake(self) -> frozenset[str]:
        """Names in the lake of ended topics, and former names of recreated topics.

        Their watermarks do not hold back the resolved TSO.
        """
        return self.ended | frozenset(self.made_anew) - frozenset(self.made_anew.values())
