"""Quotes identifiers for SQL, the same way for MySQL and Spark. All SQL with upstream names goes through here."""

from __future__ import annotations

from collections.abc import Iterable


def quoted(name: str) -> str:
    """The name as an identifier in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def unused_name(name: str, taken: Iterable[str]) -> str:
    """The name with underscores appended until it is not in `taken`, ignoring case."""
    folded = {other.casefold() for other in taken}
    while name in folded:
        name += "_"
    return name
