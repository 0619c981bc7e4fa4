"""Alerts as plain values: what is wrong, compared with what a channel has received, and the text of the difference."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from cdc_pipeline.checks.streams import NO_LOST_OFFSETS

QUIET_SECONDS = 600
"""A condition ends when it was not observed for this time, so that one that alternates is reported once."""
_LONGEST_LINE = 240
_LONGEST_TEXT = 1800
"""Services reject longer messages, Discord those of more than 2,000 characters."""


@dataclass(frozen=True)
class Condition:
    """What is wrong with a subject, such as a table, at a source: a check or a job."""

    text: str
    page: str
    """Path in Dagster's UI, without a slash at its start."""
    reasons: tuple[int, ...] = (0,)
    """A condition with a new reason is reported again."""
    is_error: bool = False


@dataclass(frozen=True)
class Known:
    """A condition that was reported to a channel."""

    seen: float
    """When it was observed last, in seconds since 1970."""
    reasons: tuple[int, ...]


@dataclass(frozen=True)
class Changes:
    """What to report to a channel."""

    began: tuple[tuple[str, Condition], ...] = ()
    """(line, condition)"""
    ended: tuple[str, ...] = ()


def reasons(check: str, text: str) -> tuple[int, ...]:
    """Numbers that stay equal while the reasons in the text of a table, rule or partition do.

    A count at the start of a reason makes another one at 10, 100, 1,000. Other numbers do not matter, except in losses of
    offsets: each of them is a reason.
    """
    parts = re.split(r"[,;] for example", text)[0].split("; ")
    if check != NO_LOST_OFFSETS:
        parts = [re.sub(r"\d+", "#", re.sub(r"^\d+", lambda count: "#" * len(count[0]), part)) for part in parts]
    return tuple(zlib.crc32(part.encode(errors="replace")) for part in parts)


def compare(
    known: Mapping[str, Mapping[str, Known]], observed: Mapping[str, Mapping[str, Condition]], now: float
) -> tuple[dict[str, dict[str, Known]], Changes]:
    """What is known afterwards, and what changed. Both mappings: source → subject → condition; the subject may be empty.

    Conditions of a source that was not observed stay.
    """
    after, began, ended = {source: dict(subjects) for source, subjects in known.items()}, [], []
    for source, conditions in observed.items():
        reported = after.setdefault(source, {})
        for subject, condition in conditions.items():
            before = reported[subject].reasons if subject in reported else ()
            if not before or not {*condition.reasons} <= {*before}:
                began.append((_line(source, subject, condition.text), condition))
            reported[subject] = Known(now, tuple(sorted({*before, *condition.reasons})))
        over = [subject for subject, one in reported.items() if now - one.seen >= QUIET_SECONDS]
        ended += [_line(source, subject) for subject in over]
        after[source] = {subject: one for subject, one in reported.items() if subject not in over}
    return after, Changes(tuple(began), tuple(ended))


def message(pipeline: str, changes: Changes, ui_url: str) -> tuple[str, str]:
    """Title and text, both plain. `ui_url`: address of Dagster's UI without a slash at its end, or empty."""
    counts = ((len(changes.began), "new"), (len(changes.ended), "ended"))
    title = f"{pipeline}: {' and '.join(f'{count} {word}' for count, word in counts if count)}"
    lines = [f"• {line}" for line, _ in changes.began] + [f"• no longer: {line}" for line in changes.ended]
    end = ["What to do: `cdc-pipeline docs operations alerts`"] if changes.began else []
    pages = list(dict.fromkeys(condition.page for _, condition in changes.began)) if ui_url else []
    end += [f"{ui_url}/{page}" for page in pages[:3]]
    room, shown = _LONGEST_TEXT - len("\n".join(end)), len(lines)
    while shown > 1 and len("\n".join(lines[:shown])) > room:
        shown -= 1
    more = [f"and {len(lines) - shown} more"] if shown < len(lines) else []
    return title, "\n".join([*lines[:shown], *more, *end])


def _line(*parts: str) -> str:
    """One line of printable characters and limited length, in which no name is a mention (@everyone)."""
    text = "".join(sign if sign.isprintable() else " " for sign in ": ".join(filter(None, parts)))
    line = re.sub(r"@(?=[^\W\d])", "@\u200b", " ".join(text.split()))
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"
