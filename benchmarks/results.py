"""The figures of a benchmark: `RESULT` lines on stdout, and a JSON file with `--json FILE`.

A line is `RESULT name value unit target verdict`, separated by spaces. The verdict is `met` or `missed`. A figure without a
target has `-` as target and verdict.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_SIGNIFICANT_DIGITS = 3
_ALL_DIGITS = 17


@dataclass(frozen=True)
class Figure:
    """A result of a benchmark. Raises ValueError for a name or unit that is not one word, or a value that is not finite."""

    name: str
    """Lower case, digits and underscores."""
    value: float
    unit: str
    target: float | None = None
    at_least: bool = False
    """Whether the value must be at least the target; otherwise at most."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise ValueError(f"{self.name!r} is not a name of lower case letters, digits and underscores")
        if not re.fullmatch(r"\S+", self.unit):
            raise ValueError(f"{self.name}: the unit {self.unit!r} is not one word")
        if not math.isfinite(self.value):
            raise ValueError(f"{self.name}: {self.value} is not a finite number")

    @property
    def verdict(self) -> str:
        """`met`, `missed`, or `-` without a target."""
        return self._verdict_on(self.value)

    @property
    def line(self) -> str:
        target = "-" if self.target is None else f"{self.target:g}"
        return f"RESULT {self.name} {self._value_text()} {self.unit} {target} {self.verdict}"

    def _verdict_on(self, value: float) -> str:
        if self.target is None:
            return "-"
        is_met = value >= self.target if self.at_least else value <= self.target
        return "met" if is_met else "missed"

    def _value_text(self) -> str:
        """The value with three significant digits, or with more if the rounded value would have the other verdict."""
        for digits in range(_SIGNIFICANT_DIGITS, _ALL_DIGITS):
            text = _rounded(self.value, digits)
            if self._verdict_on(float(text)) == self.verdict:
                return text
        return repr(self.value)


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--json FILE`. Its value is the attribute `json`: a path, or None."""
    parser.add_argument("--json", type=_new_file, metavar="FILE", help="write the figures as a JSON list to this file")


def report(figures: Sequence[Figure], file: Path | None) -> None:
    """Prints one line per figure, then writes the file unless it is None."""
    for figure in figures:
        print(figure.line, flush=True)
    if file is not None:
        write_figures(file, figures)


def write_figures(file: Path, figures: Sequence[Figure]) -> None:
    """Writes a JSON list with one object per figure, whose keys are the fields of `Figure`."""
    file.write_text(json.dumps([asdict(figure) for figure in figures], indent=2) + "\n", encoding="utf-8")


def read_figures(file: Path) -> list[Figure]:
    """The figures that `write_figures` wrote."""
    return [Figure(**fields) for fields in json.loads(file.read_text(encoding="utf-8"))]


def _new_file(text: str) -> Path:
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"the folder {path.parent} does not exist")
    return path


def _rounded(value: float, digits: int) -> str:
    """The value with this number of significant digits, without an exponent."""
    magnitude = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{max(0, digits - 1 - magnitude)}f}"
