"""Alerts: what a pipeline reports to people, and when a condition begins and ends. Plain values, without Dagster's instance.

A condition is reported when it begins and when it ends. Two forms:
- State of the lake, which a check reports completely in each batch (gaps, dead letters): it is compared with the
  conditions that are known from earlier results.
- Anything that may alternate from batch to batch (a check of a batch, lag, runs): `Failing` remembers it, and it ends
  only after `QUIET_SECONDS` without a failure.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

from cdc_pipeline.checks.ddl_applied import NO_GAPS
from cdc_pipeline.checks.dead_letters import NO_DEAD_LETTERS
from cdc_pipeline.checks.field_rules import FIELD_RULES
from cdc_pipeline.checks.keys_hold import KEYS_HOLD
from cdc_pipeline.checks.lost_offsets import NO_LOST_OFFSETS
from cdc_pipeline.checks.no_breach import NO_BREACH
from cdc_pipeline.checks.schema_matches_ddl import SCHEMA_MATCHES_DDL
from cdc_pipeline.mirrors.settings.ddl_policy import HELD_TEXT, QUARANTINED_TEXT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

Event: TypeAlias = Literal[
    "ddl_applied",
    "ddl_held",
    "ddl_not_supported",
    "gap",
    "dead_letters",
    "lag",
    "quarantine",
    "run_failed",
    "check_failed",
]
EVENTS: tuple[Event, ...] = get_args(Event)
State: TypeAlias = Literal["occurred", "began", "ended"]

QUIET_SECONDS = 600
"""A condition that may alternate ends when it was not seen for this time."""
MOST_LINES = 8
LONGEST_LINE = 240
_MOST_FAILING = 50
_MOST_CAUSES = 5
MOST_CONDITIONS = 100
"""Of more conditions of a check, only their number is reported."""


@dataclass(frozen=True)
class Place:
    """Where Dagster's UI shows more."""

    text: str
    """Such as `asset shop/consistent_cuts, check no_gaps`."""
    path: str
    """Path in the UI, without a slash at its start."""


@dataclass(frozen=True)
class Alert:
    """One message. Stored in the sensor's cursor until every channel has it, so it contains no secret."""

    pipeline: str
    event: Event
    state: State
    time: float
    """Seconds since 1970."""
    place: Place
    lines: tuple[str, ...]
    """One per table, statement, rule or run; at most `MOST_LINES`."""
    more: int = 0
    """Number of lines that were left out."""


@dataclass(frozen=True)
class Item:
    """One line of an alert."""

    event: Event
    state: State
    line: str
    place: Place
    time: float


@dataclass(frozen=True)
class Evaluation:
    """The result of an asset check."""

    check: str
    place: Place
    time: float
    passed: bool
    text: str = ""
    """Description."""
    entries: Mapping[str, str] = field(default_factory=dict)
    """Metadata as text."""


@dataclass(frozen=True)
class Condition:
    event: Event
    subject: str
    """The table or rule. It ends when no condition of this event has its subject."""
    line: str
    reason: str = ""
    """Distinguishes the conditions of a subject."""
    level: int = 0
    """A condition whose level rises is reported again."""

    @property
    def key(self) -> str:
        """Equal in later results: event, subject, and a short form of the reason."""
        return f"{self.event} {self.subject} {zlib.crc32(self.reason.encode()):08x}"


@dataclass(frozen=True)
class Observation:
    """Whether something that may alternate failed, at one moment."""

    key: str
    event: Event
    time: float
    failed: bool
    line: str
    place: Place
    level: int = 0
    cause: int = 0
    """A failure with another cause is reported again."""


@dataclass(frozen=True)
class Failing:
    """An alternating condition that has begun. Stored in the cursor."""

    event: Event
    line: str
    place: Place
    seen: float
    """When it was last seen, in seconds since 1970."""
    failed: bool
    """Whether its newest observation failed."""
    level: int = 0
    causes: tuple[int, ...] = ()
    """The causes that were reported, at most `_MOST_CAUSES`."""


# check → metadata entries that are no item. Each other entry is a condition of its own.
_ITEMIZED: dict[str, frozenset[str]] = {
    NO_GAPS: frozenset(),
    NO_DEAD_LETTERS: frozenset(),
    NO_BREACH: frozenset(),
    NO_LOST_OFFSETS: frozenset(),
    KEYS_HOLD: frozenset({"wrong_tables", "checked"}),
    SCHEMA_MATCHES_DDL: frozenset({"wrong_tables", "checked"}),
    FIELD_RULES: frozenset({"shapes"}),
}
STATE_CHECKS = frozenset(_ITEMIZED)
"""Checks that report the complete state of the lake in each batch."""


def conditions(evaluation: Evaluation) -> dict[str, Condition]:
    """The conditions that a state check reports, by key."""
    if evaluation.passed:
        return {}
    found: list[Condition] = []
    for name, text in evaluation.entries.items():
        if name in _ITEMIZED[evaluation.check]:
            continue
        if evaluation.check == NO_GAPS:
            found += _gaps(name, text)
            continue
        event: Event = "dead_letters" if evaluation.check == NO_DEAD_LETTERS else "check_failed"
        line = f"{name}: {text}" if event == "dead_letters" else f"{evaluation.check}: {name}: {text}"
        # each loss of offsets is reported; a table or rule with a number again at 10, 100, ...
        reason = text if evaluation.check == NO_LOST_OFFSETS else ""
        number = re.match(r"\d*", text) if evaluation.check in (NO_DEAD_LETTERS, NO_BREACH) else None
        found.append(Condition(event, name, line, reason, len(number.group()) if number else 0))
    return {condition.key: condition for condition in found}


def _gaps(table: str, text: str) -> list[Condition]:
    """The gaps in the text of one table. Numbers are not part of the reason, because counts change with each batch."""
    found: list[Condition] = []
    # these are the last gap of a table, and the error of a quarantined table may contain any text
    last = re.search(rf"(?:^|; )({re.escape(HELD_TEXT)}|{re.escape(QUARANTINED_TEXT)}: )", text)
    if last is not None:
        own, text = text[last.start(1) :], text[: last.start()]
        if own.startswith(HELD_TEXT):
            found.append(Condition("ddl_held", f"{table}: {own}", f"{table}: {own}"))
        else:
            found.append(Condition("quarantine", table, f"{table}: {own}"))
    for part in filter(None, text.split("; ")):
        found.append(Condition("gap", table, f"{table}: {part}", re.sub(r"[0-9]+", "#", part)))
    return found


def compare(known: Mapping[str, int], now: Evaluation) -> tuple[dict[str, int], list[Item]]:
    """The result of a state check against the conditions that are known: their levels by key.

    Returns what is known afterwards, and what ended and began. Of more than `MOST_CONDITIONS`, those that are known are
    compared first; the others are reported as a number.
    """
    new = conditions(now)
    keys = sorted(new, key=lambda key: key not in known)[:MOST_CONDITIONS]
    found = {key: new[key] for key in keys}
    if len(new) > MOST_CONDITIONS:
        event: Event = {NO_GAPS: "gap", NO_DEAD_LETTERS: "dead_letters"}.get(now.check, "check_failed")  # type: ignore[assignment]
        subject = f"more than {MOST_CONDITIONS} conditions"
        line = f"{now.check}: {len(new)} conditions; alerts name only {MOST_CONDITIONS} of them"
        number = Condition(event, subject, line, level=len(str(len(new))))
        found = {number.key: number, **found}
    remaining = {_subject(key) for key in new} | {_subject(key) for key in found}
    items = []
    for event, subject in dict.fromkeys(map(_subject, known)):
        if (event, subject) not in remaining:
            line = f"{now.check}: {subject}" if event == "check_failed" else subject
            items.append(Item(event, "ended", line, now.place, now.time))
    for key, condition in found.items():
        if key not in known or condition.level > known[key]:
            items.append(Item(condition.event, "began", condition.line, now.place, now.time))
    return {key: max(condition.level, known.get(key, 0)) for key, condition in found.items()}, items


def _subject(key: str) -> tuple[Event, str]:
    event, _, rest = key.partition(" ")
    return cast("Event", event), rest.rpartition(" ")[0]


def follow(
    failing: Mapping[str, Failing], observations: Iterable[Observation], now: float
) -> tuple[dict[str, Failing], list[Item]]:
    """Applies observations, in their order of time. Returns what is failing afterwards, and what began and ended."""
    known, items = dict(failing), []
    for seen in observations:
        before = known.get(seen.key)
        if seen.failed:
            causes = () if before is None else before.causes
            is_new = seen.cause not in causes and len(causes) < _MOST_CAUSES
            if before is None or seen.level > before.level or is_new:
                items.append(Item(seen.event, "began", seen.line, seen.place, seen.time))
            level = seen.level if before is None else max(seen.level, before.level)
            causes = (*causes, seen.cause) if is_new else causes
            known[seen.key] = Failing(seen.event, shortened(seen.line), seen.place, seen.time, True, level, causes)
        elif before is not None:
            known[seen.key] = replace(before, failed=False)
    for key, found in list(known.items()):
        if not found.failed and now - found.seen >= QUIET_SECONDS:
            items.append(Item(found.event, "ended", found.line, found.place, now))
            del known[key]
    newest = sorted(known.items(), key=lambda entry: entry[1].seen)[-_MOST_FAILING:]
    return dict(newest), items


def to_alerts(pipeline: str, items: Iterable[Item], events: Collection[str]) -> list[Alert]:
    """The items of these events as messages: one per event, state and place."""
    groups: dict[tuple[Event, State, Place], list[Item]] = {}
    for item in items:
        if item.event in events:
            groups.setdefault((item.event, item.state, item.place), []).append(item)
    return [
        Alert(
            pipeline,
            event,
            state,
            group[-1].time,
            place,
            tuple(shortened(item.line) for item in group[:MOST_LINES]),
            max(0, len(group) - MOST_LINES),
        )
        for (event, state, place), group in groups.items()
    ]


def shortened(text: str) -> str:
    """The text in one line of limited length."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"
