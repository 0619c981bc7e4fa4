"""Patterns on `database.table`, as a pipeline's file has them: `*`, `?` and `[…]` as file names have; case counts.

Python and Spark match by one regular expression: names are upstream's and may hold anything, so that each character but
letters and digits is written in it by its number.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def require_pattern(text: str) -> str:
    """The text, if it is a pattern. Raises ValueError where it can match no `database.table`."""
    if "." not in text.strip(".") and text != "*":
        raise ValueError(f"{text!r} is no pattern: one on database.table is expected, such as shop.*")
    return text


def matches(text: str, pattern: str) -> bool:
    """Whether the whole text is as the pattern says."""
    return _compiled(pattern).fullmatch(text) is not None


def matches_any(text: str, patterns: Iterable[str]) -> bool:
    return any(matches(text, pattern) for pattern in patterns)


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(_regex(pattern, lambda code: f"\\U{code:08x}"), re.DOTALL)


def java_regex(pattern: str) -> str:
    """A regular expression for Spark's RLIKE that finds the very texts that `matches` does. It is ASCII, without quotes."""
    return r"\A(?s:" + _regex(pattern, lambda code: f"\\x{{{code:x}}}") + r")\z"


def _regex(pattern: str, number: Callable[[int], str]) -> str:
    """The pattern as a regular expression in which a dot matches line ends too. `number` writes a character by its code."""

    def written(character: str) -> str:
        plain = character.isascii() and character.isalnum()
        return character if plain else number(ord(character))

    found: list[str] = []
    place = 0
    while place < len(pattern):
        character = pattern[place]
        place += 1
        end = _end_of_set(pattern, place) if character == "[" else -1
        if character == "*":
            if found[-1:] != [".*"]:
                found.append(".*")
        elif character == "?":
            found.append(".")
        elif end > 0:
            found.append(_set(pattern[place:end], written))
            place = end + 1
        else:
            found.append(written(character))
    return "".join(found)


def _end_of_set(pattern: str, start: int) -> int:
    """Where the `]` is that ends the set which begins here; -1 where there is none, so that `[` is a character."""
    first = start + 1 if pattern.startswith("!", start) else start
    return pattern.find("]", first + 1 if pattern.startswith("]", first) else first)


def _set(inside: str, written: Callable[[str], str]) -> str:
    """`[…]`: characters and ranges, `!` in front for all others. A range whose end comes before its start is empty."""
    negated = inside.startswith("!")
    body = inside[1:] if negated else inside
    items: list[str] = []
    place = 0
    while place < len(body):
        if body[place + 1 : place + 2] == "-" and place + 2 < len(body):
            if body[place] <= body[place + 2]:
                items.append(f"{written(body[place])}-{written(body[place + 2])}")
            place += 3
        else:
            items.append(written(body[place]))
            place += 1
    if not items:
        return "." if negated else "(?!)"
    return f"[{'^' if negated else ''}{''.join(items)}]"
