"""The tables of the fold."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cdc_pipeline_tests.histories.shapes import Row


@dataclass
class Held:
    """A table and its rows. `parts` are names with bounds, None for MAXVALUE; for HASH their bounds are all None."""

    columns: list[tuple[str, str]]
    key: list[str]
    not_null: set[str]
    rows: list[Row] = field(default_factory=list)
    parted_by: str = ""
    hashed: bool = False
    parts: list[tuple[str, int | None]] = field(default_factory=list)
    has_primary_key: bool = True

    def part_of(self, row: Row) -> str:
        number = int(row[self.parted_by] or 0)
        if self.hashed:
            return self.parts[abs(number) % len(self.parts)][0]
        return next(name for name, bound in self.parts if bound is None or number < bound)

    def empty(self) -> Held:
        return Held(
            list(self.columns),
            list(self.key),
            set(self.not_null),
            [],
            self.parted_by,
            self.hashed,
            list(self.parts),
            self.has_primary_key,
        )


def as_type(value: str | None, words: str) -> str | None:
    if value is None or not words.startswith("decimal"):
        return value
    return f"{Decimal(value):.{int(words[:-1].split(',')[1])}f}"
