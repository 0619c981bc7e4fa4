"""Names in quotes. The one place where upstream's names become part of SQL, MySQL's and Spark's alike."""

from __future__ import annotations


def quoted(name: str) -> str:
    """The name as an identifier."""
    return "`" + name.replace("`", "``") + "`"
