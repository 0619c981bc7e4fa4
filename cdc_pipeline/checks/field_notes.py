"""What the check `field_rules` knows from run to run: `<lake>/<pipeline>/field_rules.json`.

It is no truth but a memory: where it is missing or damaged each shape of messages is looked at once more. A lake that is no
local folder has none.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cdc_pipeline.lake.local_files import write_at_once

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdc_pipeline.contracts.validation import Breach
    from cdc_pipeline.lake.paths import LakePaths

_FILE = "field_rules.json"
_MOST_SHAPES, _MOST_PLACES = 20_000, 5


@dataclass(frozen=True)
class Warned:
    """A rule that messages broke and went on: how many, over all batches so far, some places, and in which batch last."""

    rule: str
    expected: str
    count: int
    places: tuple[str, ...]
    last_batch: int
    found: str | None = None


@dataclass(frozen=True)
class FieldNotes:
    """`batch` is the last that was looked at; `shapes` the numbers of those that were, the newest last."""

    batch: int = 0
    shapes: tuple[int, ...] = ()
    warned: tuple[Warned, ...] = ()

    def with_look(self, batch: int, shapes: Iterable[int], found: Iterable[Breach]) -> FieldNotes:
        """The notes after another look. What was found is added up by rule."""
        rules = {warned.rule: warned for warned in self.warned}
        for breach in found:
            before = rules.get(breach.rule, Warned(breach.rule, breach.expected, 0, (), batch))
            rules[breach.rule] = replace(
                before,
                count=before.count + breach.count,
                places=(*before.places, *breach.examples)[:_MOST_PLACES],
                last_batch=batch,
                found=before.found or breach.found,
            )
        known = tuple(dict.fromkeys((*self.shapes, *shapes)))[-_MOST_SHAPES:]
        return FieldNotes(batch, known, tuple(rules[name] for name in sorted(rules)))


NOTHING = FieldNotes()


def read_notes(paths: LakePaths) -> FieldNotes:
    if not paths.is_local:
        return NOTHING
    try:
        kept = json.loads((Path(paths.home) / _FILE).read_text(encoding="utf-8"))
        warned = tuple(Warned(**{**item, "places": tuple(item["places"])}) for item in kept["warned"])
        return FieldNotes(int(kept["batch"]), tuple(map(int, kept["shapes"])), warned)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return NOTHING


def write_notes(paths: LakePaths, notes: FieldNotes) -> None:
    """In one rename."""
    if not paths.is_local:
        return
    write_at_once(Path(paths.home) / _FILE, json.dumps(asdict(notes), ensure_ascii=False))
