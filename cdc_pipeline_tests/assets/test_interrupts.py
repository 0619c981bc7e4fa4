"""An interrupt within the block takes effect at its end, a second one at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from cdc_pipeline.assets.follower import deferred_interrupts


class _InterruptError(BaseException):
    """What the handler of this test raises, as Dagster's does."""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """SIGINT and SIGTERM raise `_InterruptError` during a test."""

    def interrupt(number: int, _frame: object) -> None:
        raise _InterruptError(number)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_interrupt_waits_for_the_end_of_the_block(number: signal.Signals) -> None:
    done = []

    def block() -> None:
        with deferred_interrupts():
            signal.raise_signal(number)
            done.append(number)

    with pytest.raises(_InterruptError):
        block()
    assert done == [number]
    with pytest.raises(_InterruptError):
        signal.raise_signal(number)  # the handlers are as before


def test_second_interrupt_ends_the_block() -> None:
    done = []

    def block() -> None:
        with deferred_interrupts():
            for number in range(2):
                signal.raise_signal(signal.SIGINT)
                done.append(number)

    with pytest.raises(_InterruptError):
        block()
    assert done == [0]


def test_an_interrupt_outweighs_an_error_of_the_block() -> None:
    def block() -> None:
        with deferred_interrupts():
            signal.raise_signal(signal.SIGINT)
            raise ValueError("a stage failed")

    with pytest.raises(_InterruptError):
        block()


def test_blocks_in_other_threads_run_unprotected() -> None:
    """Signals arrive in the main thread only; Dagster's in-process tests use others."""
    done: list[bool] = []

    def block() -> None:
        with deferred_interrupts():
            done.append(True)

    thread = threading.Thread(target=block)
    thread.start()
    thread.join()
    assert done == [True]
