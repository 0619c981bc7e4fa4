"""Progress bars on a terminal."""

from __future__ import annotations

import io
import itertools
import sys
import threading
import time
from collections.abc import Callable

import pytest

from cdc_pipeline.cli import output

_PATIENCE_SECONDS = 60.0


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _terminal(monkeypatch: pytest.MonkeyPatch) -> _Terminal:
    """Stdout and stderr of the test, as a terminal whose bar is refreshed often. No fixture: pytest replaces both before
    the test."""
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(output, "_REFRESH_SECONDS", 0.01)
    return terminal


def _wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_bar_is_the_last_line_until_the_work_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch)
    bar = f"  [{'#' * 10}{'-' * 20}] 2 of 6 tasks"
    with output.progress_bar(lambda: (2, 6), "tasks"):
        _wait_for(lambda: bar in terminal.getvalue())
        output.say("a line")
        _wait_for(lambda: terminal.getvalue().count(bar) == 2)
    assert terminal.getvalue() == f"\r\033[K{bar}\r\033[Ka line\033[0m\n\r\033[K{bar}\r\033[K"


def test_a_bar_disappears_while_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch)
    answers = itertools.chain([(1, 2)], itertools.repeat((0, 0)))
    with output.progress_bar(lambda: next(answers), "tasks"):
        _wait_for(lambda: terminal.getvalue().endswith("tasks\r\033[K"))
        output.say("a line")
    assert terminal.getvalue().endswith("1 of 2 tasks\r\033[Ka line\033[0m\n")


def test_without_a_terminal_there_is_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    threads = threading.active_count()
    with output.progress_bar(lambda: (1, 2), "tasks"):
        assert threading.active_count() == threads
    assert file.getvalue() == ""
