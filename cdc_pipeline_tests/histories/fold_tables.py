"""Tables of the fold."""

from __future__ import annotations

from dataclasses import dataclass, field

from cdc_pipeline_tests.histories.shapes import Row


@dataclass
class FoldTable:
    """A table and its rows.

    `parts`: (name, bound) of each table partition. The bound is None for MAXVALUE and for HASH.
    """

    columns: list[tuple[str, str]]
    key: list[str]
    not_null: set[str]
    rows: list[Row] = field(default_factory=list)
    partitioning_column: str = ""
    hashed: bool = False
    parts: list[tuple[str, int | None]] = field(default_factory=list)
    has_primary_key: bool = True

    def part_of(self, row: Row) -> str:
        number = int(row[self.partitioning_column] or 0)
        if self.hashed:
            return self.parts[abs(number) % len(self.parts)][0]
        return next(name for name, bound in self.parts if bound is None or number < bound)

    def empty(self) -> FoldTable:
        return FoldTable(
            list(self.columns),
            list(self.key),
            set(self.not_null),
            [],
            self.partitioning_column,
            self.hashed,
            list(self.parts),
            self.has_primary_key,
        )


def as_type(value: str | None, mysql_type: str) -> str | None:
    if value is None:
        return None
    if mysql_type.startswith("decimal"):
        return _decimal(value, int(mysql_type[:-1].split(",")[1]))
    if mysql_type.startswith("time"):
        return _time(value, int(mysql_type[5:-1] or 0))
    if mysql_type.startswith("set"):
        return ",".join(label for label in members(mysql_type) if label in value.split(","))
    return value


def members(mysql_type: str) -> list[str]:
    """The labels of an ENUM or SET in the form that `fold_ddl` reads it to."""
    return [label.replace("''", "'") for label in mysql_type[mysql_type.index("(") + 2 : -2].split("','")]


def as_label(number: str | None, mysql_type: str) -> str | None:
    """The label or labels of the number in a message."""
    if number is None or not mysql_type.startswith(("enum", "set")):
        return number
    if mysql_type.startswith("enum"):
        return members(mysql_type)[int(number) - 1]
    return ",".join(label for place, label in enumerate(members(mysql_type)) if int(number) >> place & 1)


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
