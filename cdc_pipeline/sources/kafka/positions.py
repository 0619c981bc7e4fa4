"""The next offset of each partition, as the commit notes store it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

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
