"""The writer lock: a file lock on the pipeline's folder, so that one run at a time writes a pipeline's tables.

Delta's transactions already keep concurrent runs correct (docs/adr/0001), but both runs would do the same work and one
would fail with a commit conflict. The operating system releases the lock when its holder ends, also after a kill.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from cdc_pipeline.errors import TransientError
from cdc_pipeline.lake.delta_log import end_only_writer
from cdc_pipeline.lake.lease import hold_lease
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.store import S3Folder
from cdc_pipeline.spark.process_lock import private_file, try_lock

_FILE = ".lock"
WAIT_SECONDS = 600.0
"""How long a run waits for another run of its pipeline before it fails with TransientError."""
_POLL_SECONDS = 0.1


@contextlib.contextmanager
def writer_lock(
    paths: LakePaths,
    run_id: str,
    report: Callable[[str], None],
    wait_seconds: float = WAIT_SECONDS,
    *,
    single_writer: bool = False,
) -> Iterator[bool]:
    """Holds the writer lock of the pipeline. `report` receives one line if the lock has to be waited for. `single_writer`:
    as in `hold_lease`.

    Yields whether this run held it before in this process, without an error, and no other run since: known on S3 only.

    A lake on S3 has a lease (`lease`). Does nothing for another remote lake: there, Dagster's limit of one run per pipeline
    and Delta's transactions separate runs.

    Raises TransientError if another run holds the lock for longer than `wait_seconds`, LakeError if the lake cannot be
    written.
    """
    if paths.is_s3:
        lost = partial(end_only_writer, paths)
        with hold_lease(
            S3Folder(paths.home), run_id, report, wait_seconds, lost, single_writer=single_writer
        ) as continues:
            yield continues
        return
    if not paths.is_local:
        yield False
        return
    file = Path(paths.home) / _FILE
    with paths.remove_empty_folders():
        descriptor = _acquire(paths, file, report, wait_seconds)
        try:
            _write_holder(descriptor, run_id)
            yield False
        finally:
            with contextlib.suppress(OSError):
                file.unlink()
            os.close(descriptor)


def _acquire(paths: LakePaths, file: Path, report: Callable[[str], None], wait_seconds: float) -> int:
    """The descriptor of the locked file. Retries if the file was removed by its previous holder meanwhile."""
    until = time.monotonic() + wait_seconds
    is_reported = False
    while True:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            # private: any user who can open the file could lock it and block every run
            descriptor = private_file(file.parent, file.name)
        except OSError as error:
            raise paths.write_error(error) from error
        if try_lock(descriptor):
            with contextlib.suppress(FileNotFoundError):
                if os.fstat(descriptor).st_ino == file.stat().st_ino:
                    return descriptor
            os.close(descriptor)
            continue
        holder = _read_holder(descriptor)
        os.close(descriptor)
        if time.monotonic() >= until:
            raise TransientError(
                f"{holder} is writing this lake and did not end within {wait_seconds:g} s", pipeline=paths.pipeline
            )
        if not is_reported:
            report(f"waiting: {holder} is writing this lake")
            is_reported = True
        time.sleep(_POLL_SECONDS)


def _write_holder(descriptor: int, run_id: str) -> None:
    since = datetime.now(timezone.utc).isoformat(timespec="seconds")
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps({"run_id": run_id, "pid": os.getpid(), "since": since}).encode(), 0)


def _read_holder(descriptor: int) -> str:
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        return f"run {holder['run_id']} (process {holder['pid']}, since {holder['since']})"
    except (ValueError, KeyError, TypeError):
        return "another run"
