"""A lock between the processes of a user, and progress output, for long work such as filling Ivy's cache of jars."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from cdc_pipeline.errors import TransientError
from cdc_pipeline.spark.private_folder import private_file, private_folder
from cdc_pipeline.spark.threads import repeating

if TYPE_CHECKING:
    from collections.abc import Iterator


WAIT_SECONDS = 900.0
"""Maximum wait for the lock. Fetching jars takes minutes."""
_POLL_SECONDS = 0.1


@contextlib.contextmanager
def process_lock(name: str, wait_seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """Holds the lock `name` of this user. Raises TransientError if another process holds it for longer than `wait_seconds`.

    The operating system releases the lock when the process ends, also after a kill. The lock file is never removed:
    otherwise a waiting process and a new one could lock two files of the same name. It is in a private folder, because any
    user who can open it could hold the lock forever.
    """
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    until = time.monotonic() + wait_seconds
    folder, file = private_folder(), f"{name}.lock"
    descriptor = private_file(folder, file)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise TransientError(
                        f"another process has held the lock {folder / file} for {wait_seconds:.0f} s: end that process, "
                        "then try again"
                    ) from None
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def report_progress(what: str, every_seconds: float = 15.0) -> Iterator[None]:
    """Within the context, prints `what` and the seconds since the start, each `every_seconds`."""
    started = time.monotonic()
    with repeating(lambda: print(f"  {what}: {time.monotonic() - started:.0f} s …", flush=True), every_seconds):
        yield
