"""State of the check `field_rules` between runs: `<lake>/<pipeline>/field_rules.json`.

It is a cache: if the file is missing or damaged, each shape of messages is validated again. Only local lakes have it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cdc_pipeline.local_files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdc_pipeline.contracts.validation import Breach
    from cdc_pipeline.lake.paths import LakePaths

_FILE = "field_rules.json"
_MOST_SHAPES, _MOST_PLACES = 20_000, 5


@dataclass(frozen=True)
class RuleWarning:
    """A rule that accepted messages break. The fields are stored by name."""

    rule: str
    expected: str
    count: int
    """Messages over all batches."""
    places: tuple[str, ...]
    """Example positions."""
    last_batch: int
    """Newest batch with such a message."""
    found: str | None = None
    """Content of one example, if the rule shows it."""


@dataclass(frozen=True)
class FieldNotes:
    """The fields are stored by name."""

    shapes: tuple[int, ...] = ()
    """Numbers of the validated shapes, newest last."""
    warned: tuple[RuleWarning, ...] = ()

    def extended(self, batch: int, shapes: Iterable[int], found: Iterable[Breach]) -> FieldNotes:
        """The notes with the result of another run. Counts are summed by rule."""
        rules = {warned.rule: warned for warned in self.warned}
        for breach in found:
            before = rules.get(breach.rule, RuleWarning(breach.rule, breach.expected, 0, (), batch))
            rules[breach.rule] = replace(
                before,
                count=before.count + breach.count,
                places=(*before.places, *breach.examples)[:_MOST_PLACES],
                last_batch=batch,
                found=before.found or breach.found,
            )
        known = tuple(dict.fromkeys((*self.shapes, *shapes)))[-_MOST_SHAPES:]
        return FieldNotes(known, tuple(rules[name] for name in sorted(rules)))


NO_NOTES = FieldNotes()


def read_notes(paths: LakePaths) -> FieldNotes:
    if not paths.is_local:
        return NO_NOTES
    try:
        stored = json.loads((Path(paths.home) / _FILE).read_text(encoding="utf-8"))
        warned = tuple(RuleWarning(**{**item, "places": tuple(item["places"])}) for item in stored["warned"])
        return FieldNotes(tuple(map(int, stored["shapes"])), warned)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return NO_NOTES


def write_notes(paths: LakePaths, notes: FieldNotes) -> None:
    """Replaces the file atomically."""
    if not paths.is_local:
        return
    write_atomically(Path(paths.home) / _FILE, json.dumps(asdict(notes), ensure_ascii=False))
