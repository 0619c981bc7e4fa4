"""The lease of a lake on S3: one run at a time writes a pipeline's tables, as with the file lock of a local lake (`lock`).

The object `.lease` names its run, which renews it every 20 s and marks it as free at its end. After a minute without a
renewal another run takes it over. Each change is one conditional PUT. Times are those of the store, because clocks of
machines differ. A run that was paused for longer loses the lease and goes on: the lease saves double work, Delta's commits
keep concurrent runs right (docs/adr/0001).
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from cdc_pipeline.errors import CdcError, LakeError, TransientError
from cdc_pipeline.lake.store import S3Folder
from cdc_pipeline.spark.threads import repeating

_NAME = ".lease"
VALID = timedelta(seconds=60)
_RENEWED_AFTER_SECONDS = 20.0
_POLL_SECONDS = 2.0
_FREED: dict[str, tuple[str, str, bool]] = {}
"""URL of the folder → the run that has freed its lease in this process, the ETag of the free lease, and `_Lease.proven`."""


@contextlib.contextmanager
def hold_lease(
    folder: S3Folder,
    run_id: str,
    report: Callable[[str], None],
    wait_seconds: float,
    lost: Callable[[], None] = lambda: None,
    *,
    single_writer: bool = False,
) -> Iterator[bool]:
    """Holds the lease. Yields whether no other run has had it since this run held it without an error, in this process.
    `report` receives one line if it has to be waited for, and one if it is lost. `lost` is called then. `single_writer`: the
    user makes sure that there is no other run.

    Raises TransientError if another run has it for longer than `wait_seconds`, LakeError if the store has no conditional
    writes and there may be other writers.
    """
    lease = _Lease(folder, run_id, single_writer)
    continues = lease.take_back()
    if not continues:
        lease.acquire(report, wait_seconds)
    freed = None
    try:
        with repeating(partial(lease.renew, report, lost), _RENEWED_AFTER_SECONDS):
            yield continues
        freed = run_id
    finally:
        if (e_tag := lease.release()) is not None and freed is not None:
            _FREED[folder.url] = freed, e_tag, lease.proven


@dataclass
class _Lease:
    folder: S3Folder
    run_id: str
    single_writer: bool = False
    proven: bool = False
    """Whether the store is known to have conditional writes. The lease keeps it, so that one run has to find out."""
    e_tag: str | None = None
    """Of the version that this run has written; None without the lease."""

    def take_back(self) -> bool:
        """Takes the lease if it is as this run has left it."""
        run_id, e_tag, proven = _FREED.pop(self.folder.url, ("", "", False))
        if run_id == self.run_id:
            self.proven = proven
            self.e_tag = self.folder.replace(_NAME, self._content(), e_tag)
        return self.e_tag is not None

    def acquire(self, report: Callable[[str], None], wait_seconds: float) -> None:
        until, is_reported = time.monotonic() + wait_seconds, False
        while (holder := self._try_to_acquire()) is not None:
            if time.monotonic() >= until:
                raise TransientError(f"{holder} is writing this lake and did not end within {wait_seconds:g} s")
            if not is_reported:
                report(f"waiting: {holder} is writing this lake")
                is_reported = True
            time.sleep(_POLL_SECONDS)

    def _try_to_acquire(self) -> str | None:
        """The run that has the lease; None if this one has it now."""
        found = self.folder.read(_NAME)
        if found is None:
            self.folder.create(_NAME, self._content())
            return self._try_to_acquire()
        holder = json.loads(found.content)
        if holder["run_id"] not in (None, self.run_id) and self.folder.now() - found.modified < VALID:
            return f"run {holder['run_id']}"
        self.proven = holder.get("proven", False) or self._has_conditional_writes()
        self.e_tag = self.folder.replace(_NAME, self._content(), found.e_tag)
        return None if self.e_tag is not None else "another run"

    def _has_conditional_writes(self) -> bool:
        """Whether the store refuses to create the lease a second time. Raises LakeError if not, unless `single_writer`."""
        if self.single_writer:
            return False
        if self.folder.create(_NAME, self._content()) is None:
            return True
        raise LakeError(
            f"{self.folder.url}: the store ignores If-None-Match in a PUT, so two runs could replace each other's "
            "commits: a store with conditional writes is expected, or single_writer: true if no other program ever "
            "writes to the lake"
        )

    def renew(self, report: Callable[[str], None], lost: Callable[[], None]) -> None:
        if self.e_tag is None:
            return
        with contextlib.suppress(CdcError):  # the next attempt may succeed, before the lease ends
            self.e_tag = self.folder.replace(_NAME, self._content(), self.e_tag)
            if self.e_tag is None:
                lost()
                report("the lease of the lake has ended, because this run was paused: another run may write, too")

    def release(self) -> str | None:
        """Marks the lease as free, unless another run has it. If that fails, it ends by itself. Returns its ETag."""
        with contextlib.suppress(CdcError):
            if self.e_tag is not None:
                return self.folder.replace(_NAME, self._content(run_id=None), self.e_tag)
        return None

    def _content(self, **changed: str | None) -> bytes:
        # a new token makes a new ETag
        values = {"run_id": self.run_id, "token": uuid.uuid4().hex, "proven": self.proven, **changed}
        return json.dumps(values).encode()
