"""A lock between the processes of a user, and progress output, for long work such as filling Ivy's cache of jars."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from cdc_pipeline.errors import TransientError
from cdc_pipeline.spark.threads import repeating


def private_folder() -> Path:
    """The folder, created if missing. Raises TransientError if another user owns or may write what is at its path."""
    folder = Path(tempfile.gettempdir(), f"cdc_pipeline-{os.getuid()}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_private(folder.lstat()):
        raise TransientError(
            f"{folder} is not a folder that only this user may write: remove it, or set TMPDIR to a folder of your own"
        )
    return folder


def is_private(status: os.stat_result) -> bool:
    """Whether it is the status of a folder that belongs to this user and that no other user may write."""
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def private_file(folder: Path, name: str) -> int:
    """The descriptor of a file (mode 0600), created if missing. No other user can open it, and so none can lock it."""
    return os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def try_lock(descriptor: int) -> bool:
    """Whether this process has locked the file now. The operating system releases the lock when the process ends."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


WAIT_SECONDS = 900.0
"""Maximum wait for the lock. Fetching jars takes minutes."""
_POLL_SECONDS = 0.1


@contextlib.contextmanager
def process_lock(name: str, wait_seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """Holds the lock `name` of this user. Raises TransientError if another process holds it for longer than `wait_seconds`.

    The lock file is never removed: otherwise a waiting process and a new one could lock two files of the same name. It is in
    a private folder, because any user who can open it could hold the lock forever.
    """
    until = time.monotonic() + wait_seconds
    folder, file = private_folder(), f"{name}.lock"
    descriptor = private_file(folder, file)
    try:
        while not try_lock(descriptor):
            if time.monotonic() >= until:
                raise TransientError(
                    f"another process has held the lock {folder / file} for {wait_seconds:.0f} s: end that process, "
                    "then try again"
                )
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
