"""The position of a record in its topic, as messages, errors and checks show it: `topic/partition@offset`."""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"


POSITION = Position._fields
"""The columns of a position, in every table of the lake that has one."""
BATCH_POSITION = ("batch_id", *POSITION)
"""The columns of a position that also say in which batch the record is: reading it needs no other batch."""
BatchPosition = tuple[int, str, int, int]
"""The values of `BATCH_POSITION`."""


def offsets_text(first: int, end: int) -> str:
    """Skipped offsets as text: `5–8`, with `end` 9. With `end` = `first` all later ones of a topic that was deleted."""
    return f"{first}–{end - 1}" if end > first else f"from {first} on, if the deleted topic had any"
