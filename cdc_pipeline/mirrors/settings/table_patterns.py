"""Glob patterns on `database.table`: `*`, `?`, `[…]` and `[!…]`. They ignore case unless they are to be `exact`.

Python and Spark use the same regular expression. It writes each character except ASCII letters and digits by its code
point, because upstream's names may contain any character.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def require_pattern(text: str) -> str:
    """The text itself. Raises ValueError if it cannot match any `database.table`."""
    if "." not in text.strip(".") and text != "*":
        raise ValueError(f"{text!r} is not a pattern on database.table, such as shop.*")
    return text


def matches(text: str, pattern: str, *, exact: bool = False) -> bool:
    """Whether the pattern matches the whole text."""
    if not exact:
        text, pattern = text.lower(), pattern.lower()
    return _compiled(pattern).fullmatch(text) is not None


def matches_any(text: str, patterns: Iterable[str]) -> bool:
    return any(matches(text, pattern) for pattern in patterns)


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(_regex(pattern, lambda code: f"\\U{code:08x}"), re.DOTALL)


def java_regex(pattern: str) -> str:
    """The pattern for Spark's RLIKE, with the matches of `exact`. It is ASCII and contains no quotes."""
    return r"\A(?s:" + _regex(pattern, lambda code: f"\\x{{{code:x}}}") + r")\z"


def _regex(pattern: str, escape: Callable[[int], str]) -> str:
    """The pattern as a regular expression to be used in DOTALL mode. `escape` writes a code point."""

    def literal(character: str) -> str:
        is_plain = character.isascii() and character.isalnum()
        return character if is_plain else escape(ord(character))

    parts: list[str] = []
    index = 0
    while index < len(pattern):
        character = pattern[index]
        index += 1
        end = _end_of_set(pattern, index) if character == "[" else -1
        if character == "*":
            if parts[-1:] != [".*"]:
                parts.append(".*")
        elif character == "?":
            parts.append(".")
        elif end > 0:
            parts.append(_set(pattern[index:end], literal))
            index = end + 1
        else:
            parts.append(literal(character))
    return "".join(parts)


def _end_of_set(pattern: str, start: int) -> int:
    """The index of the `]` that closes the set starting at `start`; -1 if none does, so that `[` is a literal."""
    first = start + 1 if pattern.startswith("!", start) else start
    return pattern.find("]", first + 1 if pattern.startswith("]", first) else first)


def _set(content: str, literal: Callable[[str], str]) -> str:
    """`[…]` with characters and ranges, negated by `!`. A range whose end is before its start is empty."""
    negated = content.startswith("!")
    body = content[1:] if negated else content
    items: list[str] = []
    index = 0
    while index < len(body):
        if body[index + 1 : index + 2] == "-" and index + 2 < len(body):
            if body[index] <= body[index + 2]:
                items.append(f"{literal(body[index])}-{literal(body[index + 2])}")
            index += 3
        else:
            items.append(literal(body[index]))
            index += 1
    if not items:
        return "." if negated else "(?!)"
    return f"[{'^' if negated else ''}{''.join(items)}]"
