"""CPU seconds and memory of a process tree, from /proc."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def tree(root: int, without: Collection[int] = ()) -> list[int]:
    """The process and its descendants, without the subtrees of `without`."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))) is not None:
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, left = [], [root]
    while left:
        pid = left.pop()
        if pid not in without:
            found.append(pid)
            left += children.get(pid, [])
    return found


def parent(pid: int) -> int:
    """The process that started this one. Raises ProcessLookupError if it has ended."""
    fields = _stat(pid)
    if fields is None:
        raise ProcessLookupError(pid)
    return int(fields[1])


def cpu_seconds(pids: Collection[int]) -> float:
    """CPU time of these processes and of their children that have ended."""
    stats = [fields for pid in pids if (fields := _stat(pid)) is not None]
    return sum(int(fields[index]) for fields in stats for index in (11, 12, 13, 14)) / _TICKS


def resident_bytes(pids: Collection[int]) -> int:
    total = 0
    for pid in pids:
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total


class Peak:
    """Peak memory of the tree, in bytes."""

    bytes = 0


@contextmanager
def peak_memory(without: Collection[int] = (), every_seconds: float = 0.5) -> Iterator[Peak]:
    """Samples the memory of this process and its descendants while the block runs."""
    peak, done = Peak(), threading.Event()

    def watch() -> None:
        while not done.wait(every_seconds):
            peak.bytes = max(peak.bytes, resident_bytes(tree(os.getpid(), without)))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name, which may contain spaces; None for an ended process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
