"""Names in quotes. The one place where upstream's names become part of SQL, MySQL's and Spark's alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def quoted(name: str) -> str:
    """The name as an identifier."""
    return "`" + name.replace("`", "``") + "`"


def unused(name: str, taken: Iterable[str]) -> str:
    """The name, made longer until it is none of those that are taken. Case does not count."""
    folded = {other.casefold() for other in taken}
    while name in folded:
        name += "_"
    return name
