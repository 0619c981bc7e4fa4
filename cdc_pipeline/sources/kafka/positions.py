"""How far a lake has read each partition, as the notes of its commits say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

Place = tuple[str, int]
"""A partition: the name under which its topic stands in the lake, and its number."""


@dataclass(frozen=True)
class Positions:
    """`following` is the offset to read next, by partition; `topic_ids` the broker's id of each topic when it was read.

    A partition that is here was seen: one that is not appeared later, and is read from its first record.
    """

    following: Mapping[Place, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of_note(note: Mapping[str, Any] | None) -> Positions | None:
        """What a commit's note says; None where it says nothing of Kafka."""
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

    def as_note(self) -> dict[str, Any]:
        return {"next": by_topic(self.following), "topics": dict(sorted(self.topic_ids.items()))}

    def moved(self, following: Mapping[Place, int], topic_ids: Mapping[str, str]) -> Positions:
        return Positions({**self.following, **following}, {**self.topic_ids, **topic_ids})


def by_topic(offsets: Mapping[Place, int]) -> dict[str, dict[str, int]]:
    """Offsets as JSON has them, and as Spark's own options do: topic, partition, offset."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found
