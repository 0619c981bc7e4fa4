"""Work that takes long and that two processes must not do at once: filling Ivy's cache of jars."""

from __future__ import annotations

import contextlib
import getpass
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def turn(name: str) -> Iterator[None]:
    """Waits until no other process has this turn. It ends with the process too, also with one that is killed.

    The file behind it is left: taking it away while another waits for it would make two turns of one.
    """
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    with Path(tempfile.gettempdir(), f"cdc_pipeline-{name}-{getpass.getuser()}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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
