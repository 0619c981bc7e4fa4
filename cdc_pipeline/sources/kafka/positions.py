"""Topics of a source: which are read, where they start, how to continue after lost offsets, and the lake's progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

TopicPartition = tuple[str, int]
"""Topic (its name in the lake) and partition number."""


@dataclass(frozen=True)
class Positions:
    """The lake's progress in the topics of a broker."""

    next_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    """A missing partition is new, and is read from its first record."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """The broker's id of each topic when it was last read."""

    def by_topic(self) -> dict[str, dict[int, int]]:
        """Topic → partition → next offset."""
        found: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in self.next_offsets.items():
            found.setdefault(topic, {})[partition] = offset
        return found

    @staticmethod
    def from_note(note: Mapping[str, Any] | None) -> Positions | None:
        """The positions in a commit note; None if it has none, as notes of other sources."""
        if note is None or not isinstance(note.get("next"), dict) or not isinstance(note.get("topics"), dict):
            return None
        return Positions(
            {
                (topic, int(partition)): int(offset)
                for topic, found in note["next"].items()
                for partition, offset in found.items()
            },
            dict(note["topics"]),
        )

    def to_note(self) -> dict[str, Any]:
        return {"next": by_topic(self.next_offsets), "topics": dict(sorted(self.topic_ids.items()))}

    def updated(self, next_offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, str]) -> Positions:
        return Positions({**self.next_offsets, **next_offsets}, {**self.topic_ids, **topic_ids})


def by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Topic → partition → offset, the JSON structure of Spark's options `startingOffsets` and `endingOffsets`."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


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

    def broker_name(self, name: str) -> str:
        """The broker's name of a topic of the lake."""
        return next((topic for topic, found in self.made_anew.items() if found == name), name)

    @property
    def ended_in_lake(self) -> frozenset[str]:
        """Names in the lake of ended topics, and former names of recreated topics.

        Their watermarks do not hold back the resolved TSO.
        """
        return self.ended | frozenset(self.made_anew) - frozenset(self.made_anew.values())
