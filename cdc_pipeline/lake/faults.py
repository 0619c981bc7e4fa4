"""Classifies errors of storage and of the JVM: as terminal or transient, and as local to a table or not."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from cdc_pipeline.errors import CdcError, LakeError, StoreRefusesError, TerminalError, TransientError
from cdc_pipeline.lake.delta import is_conflict
from cdc_pipeline.lake.paths import first_line
from cdc_pipeline.spark.jvm import exit_code, java_causes

# Searched in the messages of an exception and of its causes.
_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_NOT_WRITABLE = re.compile(r"Read-only file system|/.*Permission denied|Permission denied.*/|AccessControlException")
_DAMAGED = re.compile(
    r"DELTA_(VERSIONS_NOT_CONTIGUOUS|TRUNCATED_TRANSACTION_LOG|STATE_RECOVER_ERROR|MISSING_PART_FILES|LOG_FILE_NOT_FOUND\w*"
    r"|FILE_NOT_FOUND\w*|CHECKPOINT_\w+|CANNOT_RECONSTRUCT\w*)"
    r"|ChecksumException|FAILED_READ_FILE|is not a Parquet file|Could not read footer"
)
# The client of Hadoop, delta-rs and obstore, and Arrow. What a 404 means depends on the object.
_STORE_REFUSES = re.compile(
    r"\(Service: S3, Status Code: (?:301|400|401|403)|NoSuchBucket|AWS Error \w+ (?:\(HTTP status 40[013]\) )?during"
    r"|<Error>\s*<Code>(?!NoSuchKey|PreconditionFailed|SlowDown|InternalError|ServiceUnavailable)"
    r"|non-2xx status code: (?:301|400|401|403)\b"
)
_STORE_SAYS = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<]*)|:(\w+): ([^:()]*) \(Service: S3,")
# An exception class counts only at the begin of a line or after the host of a failed task: a quoted row value in a message
# may contain any text, including that of an error.
_CLASS_START = r"(?:^(?:Caused by: )?|executor [\w.]+\): )"
_CLASS = re.compile(_CLASS_START + r"([\w.$]+)(?::|$)")
_SERVICE_ERROR = re.compile(
    r"(OutOfMemoryError|Py4JNetworkError|ConnectException|ConnectionError|UnknownHostException|SocketTimeoutException"
    r"|SocketException|NoRouteToHostException|InterruptedIOException|ClosedByInterruptException|InterruptedException"
    r"|AccessControlException|AccessDeniedException|(AWS|Amazon|Sdk|S3|Abfs|Azure|Storage|GoogleJson)\w*Exception)$"
)
_IO_ERROR = re.compile(
    _CLASS_START + r"[\w.$]*(IOException|FSError|FileSystemException|FileNotFoundException): [^'\"]*"
    r"(No space left on device|Disk quota exceeded|Read-only file system|Permission denied|Too many open files|Stale file"
    r"|Input/output error|Transport endpoint)"
)
_OUT_OF_MEMORY = re.compile(_CLASS_START + r"[\w.$]*OutOfMemoryError\b")
_STOPPED = re.compile(r"stopped SparkContext|SparkContext (was|has been) (shut ?down|stopped)")
_FILE = re.compile(r"(?:^|(?<=[\s'\"(]))(?:file:)?/[^\s'\"`,;]+")


def to_lake_error(error: BaseException) -> CdcError | None:
    """The error to raise in place of `error`; None if its cause is not the disk, a damaged table or the end of the JVM."""
    messages, code = _messages(error), exit_code()
    end = _first_match(_OUT_OF_MEMORY, messages) or _first_match(_STOPPED, messages)
    if code is not None or end is not None:
        reason = end if code is None else f"exit code {code} (-9: the JVM was killed; 52: its heap was full)"
        # terminal, because Spark cannot start again in this process
        return TerminalError(
            f"Spark ended or ran out of memory: {_short(str(reason))}. Published cuts are intact; the next run continues. "
            "If it ends in the same way, raise CDC_DRIVER_MEMORY (the heap), and the memory of the process (2 GB more): "
            "`cdc-pipeline docs operations driver memory`"
        )
    if line := _first_match(_DISK_FULL, messages):
        return TransientError(
            f"the disk is full: {_short(line)}. Published cuts are intact. Free space; the next run continues"
        )
    if line := _first_match(_NOT_WRITABLE, messages):
        return LakeError(f"the lake cannot be written: {_short(line)}")
    if line := _first_match(_STORE_REFUSES, messages):
        said = next(filter(None, map(_STORE_SAYS.search, (line, *messages))), None)
        reason = _short(line) if said is None else ": ".join(filter(None, said.groups()))
        return StoreRefusesError(f"the object store refuses access: {reason}. Published cuts are intact")
    if line := _first_match(_DAMAGED, messages):
        path = next(_paths((line, *messages)), "a table")
        return damaged_table(path, line)
    return None


def damaged_table(path: str, reason: object) -> LakeError:
    """The error of a table whose log or files are damaged. `reason`: an exception or a line of its text."""
    line = next(iter(str(reason).strip().splitlines()), type(reason).__name__)
    return LakeError(
        f"{path} is damaged or missing: {_short(line)}. Nothing was repaired. Follow "
        "`cdc-pipeline docs operations a damaged log`"
    )


def affects_all_tables(error: BaseException) -> bool:
    """Whether the error's cause is not specific to one mirror, so that no mirror must be quarantined for it.

    Such causes are the disk, the lake, the JVM, Spark, a remote service, a concurrent writer, any TransientError and a
    damaged table that is not a mirror.
    """
    if isinstance(error, (TransientError, StoreRefusesError, OSError, MemoryError)) or is_conflict(error):
        return True
    messages = _messages(error)
    classes = [match[1] for line in messages if (match := _CLASS.search(line))] + [type(error).__name__]
    if any(map(_SERVICE_ERROR.search, classes)) or any(
        _IO_ERROR.search(line) or _STOPPED.search(line) for line in messages
    ):
        return True
    damaged = _first_match(_DAMAGED, messages)
    if damaged is None:
        return False
    paths = list(_paths((damaged, *messages)))
    return bool(paths) and not any(re.search("/(mirrors?|dropped)/", path) for path in paths)


def _first_match(pattern: re.Pattern[str], lines: Iterable[str]) -> str | None:
    return next(filter(pattern.search, lines), None)


def _paths(lines: Iterable[str]) -> Iterator[str]:
    """The first file path in each line that has one."""
    return (match[0] for line in lines if (match := _FILE.search(line)))


def _messages(error: BaseException) -> list[str]:
    """The message lines of an exception and of its Python and Java causes. A failed job's include those of its task."""
    lines: list[str] = []
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        with contextlib.suppress(Py4JError, OSError):  # an exception of a JVM that has ended has no text
            lines += [first_line(cause), *str(cause).splitlines()]
            lines += (line for java in java_causes(cause) for line in str(java.toString()).splitlines())
        cause = cause.__cause__ or cause.__context__
    return lines


def _short(line: str) -> str:
    return line.strip()[:300]
