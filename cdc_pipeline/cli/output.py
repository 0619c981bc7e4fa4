"""What the command prints. All text passes through `say`, because names and values of upstream may contain anything."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from cdc_pipeline.spark.threads import repeating

_BAR_WIDTH = 30
_REFRESH_SECONDS = 0.5
_CLEAR_LINE = "\r\033[K"

_terminal = threading.Lock()
_bar = ""
"""The bar that is the last line of the terminal now."""


def say(text: str = "", **style: Any) -> None:
    """Prints the text without control characters. `style`: of `click.secho`."""
    with _terminal:
        _show("")
        click.secho(printable(text), **style)


@contextmanager
def progress_bar(progress: Callable[[], tuple[int, int]], unit: str) -> Iterator[None]:
    """Within the context, the last line of a terminal is a bar: done and all of `progress`, in `unit`. None while all is 0.

    Does nothing if stderr is no terminal.
    """
    if not sys.stderr.isatty():
        yield
        return

    def refresh() -> None:
        done, total = progress()
        with _terminal:
            filled = _BAR_WIDTH * done // (total or 1)
            bar = f"  [{'#' * filled}{'-' * (_BAR_WIDTH - filled)}] {done} of {total} {unit}"
            _show(bar if total else "")

    try:
        with repeating(refresh, _REFRESH_SECONDS):
            yield
    finally:
        with _terminal:
            _show("")


def _show(bar: str) -> None:
    """Replaces the bar. The caller holds the lock."""
    global _bar  # a process has one terminal
    if bar != _bar:
        click.echo(f"{_CLEAR_LINE}{bar}", nl=False, err=True)
        _bar = bar


def printable(text: str) -> str:
    """The text without control characters."""
    return "".join(character if character.isprintable() or character == "\n" else "\ufffd" for character in text)


def json_default(value: Any) -> str:
    """Text of values that JSON lacks, such as times and bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
