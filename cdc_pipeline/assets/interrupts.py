"""Lets a stage finish before the cancellation of a run takes effect."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Dagster cancels a run with SIGINT, systemd and Kubernetes with SIGTERM."""


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Handles the first interrupt within the block at its end, and any further one at once.

    Python handles signals in the main thread only, so the block is not protected in other threads.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in _SIGNALS}
    received: list[int] = []

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def defer(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        restore()

    for number in handlers:
        signal.signal(number, defer)
    try:
        yield
    finally:
        restore()
        for number in received:
            signal.raise_signal(number)
