"""The tables of the fold."""

from __future__ import annotations

from dataclasses import dataclass, field
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
    if value is None:
        return None
    if words.startswith("decimal"):
        return _decimal(value, int(words[:-1].split(",")[1]))
    if words.startswith("time"):
        return _time(value, int(words[5:-1] or 0))
    if words.startswith("set"):
        return ",".join(label for label in members(words) if label in value.split(","))
    return value


def members(words: str) -> list[str]:
    """The labels of the words that `fold_ddl` makes of an ENUM or SET."""
    return words[words.index("(") + 2 : -2].split("','")


def as_label(number: str | None, words: str) -> str | None:
    """The label, or the labels, of a number in a message."""
    if number is None or not words.startswith(("enum", "set")):
        return number
    if words.startswith("enum"):
        return members(words)[int(number) - 1]
    return ",".join(label for place, label in enumerate(members(words)) if int(number) >> place & 1)


def _decimal(value: str, scale: int) -> str:
    whole, _, fraction = value.removeprefix("-").partition(".")
    digits = int(whole + fraction.ljust(scale + 1, "0")[: scale + 1])
    number = str((digits + 5) // 10).rjust(scale + 1, "0")
    text = f"{number[:-scale]}.{number[-scale:]}"
    return f"-{text}" if value.startswith("-") and text.strip("0.") else text


def _time(value: str, digits: int) -> str:
    clock, _, fraction = value.removeprefix("-").partition(".")
    hours, minutes, seconds = map(int, clock.split(":"))
    micros = ((hours * 60 + minutes) * 60 + seconds) * 10**6 + int(fraction.ljust(6, "0"))
    step: int = 10 ** (6 - digits)
    micros = (micros + step // 2) // step * step
    seconds, fraction = micros // 10**6, f"{micros % 10**6:06d}"[:digits]
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{'.' if digits else ''}{fraction}"
    return f"-{text}" if value.startswith("-") and micros else text
