"""The commit times of an upstream."""

from __future__ import annotations

from cdc_pipeline_tests.histories.choices import Choices
from cdc_pipeline_tests.histories.upstream import TSO_SHIFT
from cdc_pipeline_tests.support.messages import EPOCH_MS


class Clock:
    """Returns increasing TSOs.

    `own_ms`: no two transactions share a millisecond. `apart`: each DDL statement has a span of this many ms for itself,
    which starts at a multiple of it. 0: DDL needs no span.
    """

    def __init__(self, choices: Choices, *, own_ms: bool = False, apart: int = 0) -> None:
        self._choices = choices
        self._own_ms = own_ms
        self._apart = apart
        self._ms, self._counter = EPOCH_MS, 1

    def next(self) -> int:
        step = self._choices.integer(0, 9)
        if step < 3 and not self._own_ms:
            self._counter += 1 + step
        else:
            # a few ms, or enough to change the second
            self._ms += self._choices.integer(1, 20) if step < 8 else self._choices.integer(200, 5000)
            self._counter = 1
        return self._ms << TSO_SHIFT | self._counter

    def soon(self) -> int:
        """The next TSO, a few ms later."""
        self._ms, self._counter = self._ms + self._choices.integer(1, 20), 1
        return self._ms << TSO_SHIFT | self._counter

    def wait(self, ms: int) -> None:
        """Lets so much time pass, to the second."""
        self._ms, self._counter = self._next_span(self._ms + ms - 1, 1000), 0

    def next_of_ddl(self) -> int:
        if not self._apart:
            return self.next()
        alone = self._next_span()
        self._ms, self._counter = self._next_span(alone), 0
        return alone << TSO_SHIFT | 1

    def _next_span(self, ms: int | None = None, span: int = 0) -> int:
        span = span or self._apart
        return ((self._ms if ms is None else ms) // span + 1) * span
