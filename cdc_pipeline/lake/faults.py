"""What Spark, Delta and Python say of a disk or a table that fails, in one line of ours: terminal or transient."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cdc_pipeline.errors import LakeError, TransientError
from cdc_pipeline.lake.delta import is_conflict
from cdc_pipeline.lake.paths import first_line

if TYPE_CHECKING:
    from cdc_pipeline.errors import CdcError

# Of the text of an exception and of its causes: what is wrong, and whether it may pass.
_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_CLOSED = re.compile(r"Read-only file system|/.*Permission denied|Permission denied.*/|AccessControlException")
_DAMAGED = re.compile(
    r"DELTA_(VERSIONS_NOT_CONTIGUOUS|TRUNCATED_TRANSACTION_LOG|STATE_RECOVER_ERROR|MISSING_PART_FILES|LOG_FILE_NOT_FOUND\w*"
    r"|FILE_NOT_FOUND\w*|CHECKPOINT_\w+|CANNOT_RECONSTRUCT\w*)"
    r"|ChecksumException|FAILED_READ_FILE|is not a Parquet file|Could not read footer"
)
# The class of an exception, where a line begins with it, or tells of a task that ended with it: a text in quotes may hold
# anything, also what an error would say.
_BEGINS = r"(?:^(?:Caused by: )?|executor [\w.]+\): )"
_CLASS = re.compile(_BEGINS + r"([\w.$]+)(?::|$)")
_AWAY = re.compile(
    r"(OutOfMemoryError|Py4JNetworkError|ConnectException|ConnectionError|UnknownHostException|SocketTimeoutException"
    r"|SocketException|NoRouteToHostException|InterruptedIOException|ClosedByInterruptException|InterruptedException"
    r"|AccessControlException|AccessDeniedException|(AWS|Amazon|Sdk|S3|Abfs|Azure|Storage|GoogleJson)\w*Exception)$"
)
_NOT_WRITTEN = re.compile(
    _BEGINS + r"[\w.$]*(IOException|FSError|FileSystemException|FileNotFoundException): [^'\"]*"
    r"(No space left on device|Disk quota exceeded|Read-only file system|Permission denied|Too many open files|Stale file"
    r"|Input/output error|Transport endpoint)"
)
_STOPPED = re.compile(r"stopped SparkContext|SparkContext (was|has been) (shut ?down|stopped)")
_FILE = re.compile(r"(?:^|(?<=[\s'\"(]))(?:file:)?/[^\s'\"`,;]+")


def lake_fault(error: BaseException) -> CdcError | None:
    """The error of ours that this one means; None where it is not the disk's or the table's."""
    told = _causes(error)
    if found := next((line for line in told if _FULL.search(line)), None):
        return TransientError(
            f"the disk is full: {_short(found)}. What was published before stands; the next run goes on from there"
        )
    if found := next((line for line in told if _CLOSED.search(line)), None):
        return LakeError(f"the lake cannot be written: {_short(found)}")
    if found := next((line for line in told if _DAMAGED.search(line)), None):
        place = next((file[0] for line in (found, *told) if (file := _FILE.search(line))), "a table")
        return LakeError(
            f"{place} is damaged or gone: {_short(found)}. Nothing was mended: docs/operations.md (A damaged log) says what "
            "to do"
        )
    return None


def is_everywhere(error: BaseException) -> bool:
    """Whether the reason of an error is not one table's own: the disk or the lake, the JVM or Spark itself, another writer.
    What may pass is among them. A table that is damaged is its own reason, unless it is none of a mirror."""
    if isinstance(error, (TransientError, OSError, MemoryError)) or is_conflict(error):
        return True
    told = _causes(error)
    classes = [found[1] for line in told if (found := _CLASS.search(line))] + [type(error).__name__]
    if any(map(_AWAY.search, classes)) or any(_NOT_WRITTEN.search(line) or _STOPPED.search(line) for line in told):
        return True
    damaged = next((line for line in told if _DAMAGED.search(line)), None)
    if damaged is None:
        return False
    places = [file[0] for line in (damaged, *told) if (file := _FILE.search(line))]
    return bool(places) and not any("/mirror/" in place or "/dropped/" in place for place in places)


def _causes(error: BaseException) -> list[str]:
    """The lines of what the exceptions of the chain say, Python's and Java's: a failed job tells its task's error, too."""
    lines: list[str] = []
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        lines += [first_line(found), *str(found).splitlines(), *_java_causes(found)]
        found = found.__cause__ or found.__context__
    return lines


def _java_causes(error: BaseException) -> list[str]:
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    lines = []
    for _ in range(20):
        if java is None or not hasattr(java, "getCause"):
            break
        lines += str(java.toString()).splitlines()
        java = java.getCause()
    return lines


def _short(line: str) -> str:
    return line.strip()[:300]
