"""Glob patterns on `database.table`: `*`, `?`, `[…]` and `[!…]`. They ignore case unless they are to be `exact`.

Python matches them as file names, Spark by a regular expression that matches the same names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

_PIECES = re.compile(r"(?P<any>\*+)|\[(?P<negated>!|(?!!))(?P<set>\][^\]]*|[^\]]+)\]|(?P<one>.)", re.DOTALL)
_ITEMS = re.compile(r"(.)-(.)|(.)", re.DOTALL)


def require_pattern(text: str) -> str:
    """The text itself. Raises ValueError if it cannot match any `database.table`."""
    if "." not in text.strip(".") and text != "*":
        raise ValueError(f"{text!r} is not a pattern on database.table, such as shop.*")
    return text


def matches(text: str, pattern: str, *, exact: bool = False) -> bool:
    """Whether the pattern matches the whole text."""
    return fnmatchcase(text, pattern) if exact else fnmatchcase(text.lower(), pattern.lower())


def matches_any(text: str, patterns: Iterable[str]) -> bool:
    return any(matches(text, pattern) for pattern in patterns)


def java_regex(pattern: str) -> str:
    """The pattern for Spark's RLIKE, with the matches of `exact`.

    Its characters other than ASCII letters and digits are code points, because upstream's names may have any character,
    and the text is quoted in SQL.
    """
    return rf"\A(?s:{_PIECES.sub(_java_piece, pattern)})\z"


def _java_piece(piece: re.Match[str]) -> str:
    if piece["any"]:
        return ".*"
    if piece["set"]:
        return _java_set(piece["set"], negated=bool(piece["negated"]))
    return "." if piece["one"] == "?" else _literal(piece["one"])


def _java_set(body: str, *, negated: bool) -> str:
    """`[…]` with characters and ranges. A range whose end is before its start is empty."""
    items = [
        _literal(one) if one else f"{_literal(first)}-{_literal(last)}"
        for first, last, one in _ITEMS.findall(body)
        if one or first <= last
    ]
    if not items:
        return "." if negated else "(?!)"
    return f"[{'^' if negated else ''}{''.join(items)}]"


def _literal(character: str) -> str:
    is_plain = character.isascii() and character.isalnum()
    return character if is_plain else f"\\x{{{ord(character):x}}}"
