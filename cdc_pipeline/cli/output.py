"""What the command prints. All text passes through `say`, because names and values of upstream may contain anything."""

from __future__ import annotations

from typing import Any

import click


def say(text: str = "", **style: Any) -> None:
    """Prints the text without control characters. `style`: of `click.secho`."""
    click.secho(printable(text), **style)


def printable(text: str) -> str:
    """The text without control characters."""
    return "".join(character if character.isprintable() or character == "\n" else "\ufffd" for character in text)


def json_default(value: Any) -> str:
    """Text of values that JSON lacks, such as times and bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
