"""Work that takes long and that two processes must not do at once: filling Ivy's cache of jars."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

from cdc_pipeline.errors import TransientError
from cdc_pipeline.spark.private_folder import private_file, private_folder

if TYPE_CHECKING:
    from collections.abc import Iterator


WAIT_SECONDS = 900.0
"""How long a process waits for its turn: jars are fetched in minutes, or not at all."""
_POLL_SECONDS = 0.1


@contextlib.contextmanager
def turn(name: str, wait_seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """Waits until no other process of this user has this turn. It ends with the process too, also with one that is killed.
    Raises TransientError where that takes longer than `wait_seconds`.

    The file behind it is left: taking it away while another waits for it would make two turns of one. It lies where only
    this user can open it: any other could hold it for good.
    """
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    folder, until = private_folder(), time.monotonic() + wait_seconds
    descriptor = private_file(folder, f"{name}.lock")
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise TransientError(
                        f"another process has been at {name} for {wait_seconds:.0f} s and does not end: it holds "
                        f"{folder / f'{name}.lock'}"
                    ) from None
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def told(what: str, every_seconds: float = 15.0) -> Iterator[None]:
    """Says again and again for how long `what` has been going on; nothing where it ends before the first time."""
    done = threading.Event()

    def report() -> None:
        started = time.monotonic()
        while not done.wait(every_seconds):
            print(f"  {what}: {time.monotonic() - started:.0f} s …", flush=True)

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        done.set()
        reporter.join()
