"""One writer per pipeline: a lock on the pipeline's folder, which the operating system lets go of when its holder dies.

Delta's own transactions keep two writers from doubling anything (docs/adr/0001), but two of them would do the same work
and one would fail at some commit with a conflict. So the second one waits, and says for whom.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from cdc_pipeline.errors import TransientError
from cdc_pipeline.spark.private_folder import private_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cdc_pipeline.lake.paths import LakePaths

_FILE = ".lock"
WAIT_SECONDS = 600.0
"""How long a run waits for another one of its pipeline before it asks to be tried again later."""
_POLL_SECONDS = 0.5


@contextlib.contextmanager
def only_writer(
    paths: LakePaths, run_id: str, report: Callable[[str], None], wait_seconds: float = WAIT_SECONDS
) -> Iterator[None]:
    """Holds the pipeline's lock. Raises TransientError where another holds it for longer than `wait_seconds`, LakeError
    where the folder cannot be written.

    A lake that is not a local folder has no such lock: there Dagster's limit of one run per pipeline and Delta's
    transactions are what keeps two runs apart.
    """
    if not paths.is_local:
        yield
        return
    file = Path(paths.home) / _FILE
    with paths.without_trace():
        descriptor = _taken(paths, file, report, time.monotonic() + wait_seconds)
        try:
            _say_who(descriptor, run_id)
            yield
        finally:
            with contextlib.suppress(OSError):
                file.unlink()
            os.close(descriptor)


def _taken(paths: LakePaths, file: Path, report: Callable[[str], None], until: float) -> int:
    """The descriptor of the locked file. It must still be the one of that name: its last holder has removed it."""
    told = False
    while True:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            # who can read it can lock it, and keep every run waiting
            descriptor = private_file(file.parent, file.name)
        except OSError as error:
            raise paths.cannot_be_written(error) from error
        if _locked(descriptor):
            with contextlib.suppress(FileNotFoundError):
                if os.fstat(descriptor).st_ino == file.stat().st_ino:
                    return descriptor
            os.close(descriptor)
            continue
        holder = _holder(descriptor)
        os.close(descriptor)
        if time.monotonic() >= until:
            raise TransientError(f"{holder} is writing this lake and did not end", pipeline=paths.pipeline)
        if not told:
            report(f"waiting: {holder} is writing this lake")
            told = True
        time.sleep(_POLL_SECONDS)


def _locked(descriptor: int) -> bool:
    try:
        import fcntl
    except ImportError:  # not on Windows
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _say_who(descriptor: int, run_id: str) -> None:
    since = datetime.now(timezone.utc).isoformat(timespec="seconds")
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps({"run_id": run_id, "pid": os.getpid(), "since": since}).encode(), 0)


def _holder(descriptor: int) -> str:
    try:
        found = json.loads(os.pread(descriptor, 4096, 0))
        return f"run {found['run_id']} (process {found['pid']}, since {found['since']})"
    except (ValueError, KeyError, TypeError):
        return "another run"
