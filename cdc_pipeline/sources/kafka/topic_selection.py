"""What a pipeline's file says of its topics: which, from where, and how to go on where that is not possible."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc_pipeline.sources.kafka.positions import Place

CLOCK_SKEW_MS = 10 * 60 * 1000
"""How much earlier than a commit TSO's time its records are looked for. A message is sent after its commit, but by another
machine's clock; what is read too much is harmless."""


@dataclass(frozen=True)
class Start:
    """Where a pipeline begins that has read nothing yet. `time_ms` for `timestamp` and `commit_tso`; `offsets` by topic and
    partition for `offsets`."""

    at: Literal["earliest", "latest", "time", "offsets"] = "earliest"
    time_ms: int = 0
    offsets: Mapping[Place, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Selection:
    """Which topics are read, and how to go on where a partition cannot be read on from where the lake is.

    `made_anew` gives a topic that was deleted and made again another name in the lake, so that a position still means one
    record; `resume_at` is the offset at which to go on, by partition, where records are gone; `ended` are topics (by their
    names in the lake) that nothing comes from any more.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    start: Start = Start()
    made_anew: Mapping[str, str] = field(default_factory=dict)
    resume_at: Mapping[Place, int] = field(default_factory=dict)
    ended: frozenset[str] = frozenset()

    def in_lake(self, topic: str) -> str:
        """The name under which a topic's records stand in the lake."""
        return self.made_anew.get(topic, topic)

    @property
    def ended_in_lake(self) -> frozenset[str]:
        """Topics that are in the lake and get nothing more: their watermarks must not hold the others back."""
        return self.ended | frozenset(self.made_anew) - frozenset(self.made_anew.values())
