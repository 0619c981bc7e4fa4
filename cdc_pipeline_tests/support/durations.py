"""How long each file of tests takes, as `durations.json` has it: stage, file, seconds.

Two processes share the files out, longest first: one that began a long file last would keep the other waiting.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TESTS = Path(__file__).parents[1]
FILE = TESTS / "durations.json"

# stage → file below the folder of the tests → seconds
Durations = dict[str, dict[str, int]]


def recorded() -> Durations:
    found: Durations = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def place(durations: Mapping[str, Mapping[str, int]], stage: str, file: str) -> float:
    """Sorted by it the files stand longest first, and before all of them those that are not known."""
    return -durations.get(stage, {}).get(file, float("inf"))


class Recorder:
    """Adds up what the tests of a run took."""

    def __init__(self) -> None:
        self._seconds: defaultdict[tuple[str, str], float] = defaultdict(float)

    def add(self, stage: str, file: str, seconds: float) -> None:
        self._seconds[stage, file] += seconds

    def merged(self, before: Mapping[str, Mapping[str, int]], files: Iterable[str]) -> Durations:
        """What was known before with the seconds of this run in their place, for the files that are there."""
        there = set(files)
        found = {stage: {file: known[file] for file in known if file in there} for stage, known in before.items()}
        for (stage, file), seconds in self._seconds.items():
            found.setdefault(stage, {})[file] = round(seconds)
        return {
            stage: dict(sorted(known.items(), key=lambda entry: (-entry[1], entry[0])))
            for stage, known in sorted(found.items())
        }

    def write(self) -> None:
        files = (path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py"))
        text = json.dumps(self.merged(recorded(), files), indent=2, ensure_ascii=False)
        FILE.write_text(text + "\n", encoding="utf-8")
