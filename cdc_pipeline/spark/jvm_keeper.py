"""The process that keeps a JVM running between runs, and the folder through which runs and it know of each other.

It is started by the path of this file, so that what stays in memory for so long is a small Python: of the package nothing
is imported here, and neither is PySpark.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

FREE, TAKEN = "free", "taken"
_TEMPORARY = "temporary-"
_POLL_SECONDS = 0.3
_ORDERLY_SECONDS = 10.0
_MOST_SECONDS = 6 * 3600.0  # whatever gathers in a JVM over many runs goes with it
_MARK_BYTES = 128


class NotPrivateError(Exception):
    """A folder that another user owns or may write."""


def require_private(folder: Path) -> None:
    """Makes the folder where there is none. Raises NotPrivateError where others could have put something there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not folder.is_dir() or folder.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise NotPrivateError(f"{folder} is not a folder that only this user may write")


@dataclass(frozen=True)
class Mark:
    """What the last client said of the JVM: that it has it, or that it left it in order, and for how many seconds the JVM
    is to be kept from then on."""

    state: str = FREE
    seconds: float = 0.0
    pid: int = 0


@dataclass(frozen=True)
class Connection:
    """How to reach the JVM's gateway, and its process."""

    port: int
    secret: str
    pid: int


class JvmFolder:
    """The folder of one JVM.

    Its file `lock` is locked by whoever has the JVM, for as long as that process lives: the operating system lets go of
    it however the process ends. What the file holds is the mark. `keeper` is locked by the keeper in the same way.
    Neither is ever removed: taking a file away while another waits for it would make two locks of one.
    """

    def __init__(self, path: Path) -> None:
        """Makes the folder and the one around it. Raises NotPrivateError where others could have put something there."""
        for folder in (path.parent, path):
            require_private(folder)
        self.path = path
        self.log = path / "log"
        self._connection = path / "connection.json"

    def lock(self) -> int | None:
        """The descriptor of the JVM's lock; None where another process has it."""
        return self._locked("lock")

    def keeper_lock(self) -> int | None:
        return self._locked("keeper")

    def is_kept(self) -> bool:
        descriptor = self.keeper_lock()
        if descriptor is not None:
            os.close(descriptor)
        return descriptor is None

    def keeper(self) -> int:
        """The keeper's process, as long as it is kept."""
        return _mark_in(self.path / "keeper").pid

    def mark(self) -> Mark:
        return _mark_in(self.path / "lock")

    def connection(self) -> Connection | None:
        try:
            return Connection(**json.loads(self._connection.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def set_connection(self, connection: Connection | None) -> None:
        if connection is None:
            self._connection.unlink(missing_ok=True)
            return
        descriptor, name = tempfile.mkstemp(dir=self.path)  # mode 0600
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(connection), file)
        Path(name).replace(self._connection)

    def clear(self) -> None:
        """Takes away what a keeper that was killed has left."""
        self.set_connection(None)
        for left in self.path.glob(f"{_TEMPORARY}*"):
            shutil.rmtree(left, ignore_errors=True)

    def _locked(self, name: str) -> int | None:
        import fcntl

        descriptor = os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor


def set_mark(descriptor: int, mark: Mark) -> None:
    # always as many bytes in one write, so that a process that is killed leaves the one mark or the other
    os.pwrite(descriptor, json.dumps(asdict(mark)).encode().ljust(_MARK_BYTES), 0)


def _mark_in(file: Path) -> Mark:
    try:
        return Mark(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        return Mark()


class Keeper:
    """Starts the JVM and stays until it is to end: nobody has used it for long enough, it is hours old, its client vanished,
    it died by itself, or SIGTERM.

    The JVM ends with the keeper, however that ends: PySpark's gateway ends when its standard input does, which is ours.
    """

    def __init__(self, folder: JvmFolder) -> None:
        self._folder = folder
        self._told_to_end = False

    def keep(self, command: list[str]) -> None:
        descriptor = self._folder.keeper_lock()
        if descriptor is None:
            return
        set_mark(descriptor, Mark(pid=os.getpid()))
        signal.signal(signal.SIGTERM, self._told)
        self._folder.clear()
        # what Spark puts on the disk for itself is removed by this process, since a JVM that is killed does not do it
        with tempfile.TemporaryDirectory(dir=self._folder.path, prefix=_TEMPORARY, ignore_cleanup_errors=True) as place:
            answer = Path(place) / "answer"
            process = _started(command, place, answer)
            try:
                while process.poll() is None and not answer.is_file() and not self._told_to_end:
                    time.sleep(0.05)
                if answer.is_file() and process.poll() is None:
                    self._folder.set_connection(_read_answer(answer, process.pid))
                    self._stay(process)
                lock = self._folder.lock()  # where a client has the JVM it loses it
                self._folder.set_connection(None)
                _ended(process)
                if lock is not None:
                    os.close(lock)
            finally:
                _killed(process)

    def _told(self, _signal: int, _frame: FrameType | None) -> None:
        self._told_to_end = True

    def _stay(self, process: subprocess.Popen[bytes]) -> None:
        last, started = Mark(), time.monotonic()
        since = started
        while process.poll() is None and not self._told_to_end:
            time.sleep(_POLL_SECONDS)
            lock = self._folder.lock()
            if lock is None:
                since = time.monotonic()
                continue
            mark = self._folder.mark()
            if mark != last:
                last, since = mark, time.monotonic()
            # The lock is held until the JVM is gone, so that nobody takes one that is about to end.
            if mark.state == TAKEN:
                # Its client was killed, or did not say that nothing is left to do: what it began may still be writing.
                self._folder.set_connection(None)
                _killed(process)
                set_mark(lock, Mark())
            elif time.monotonic() - since >= mark.seconds or time.monotonic() - started >= _MOST_SECONDS:
                self._folder.set_connection(None)
                _ended(process)
            os.close(lock)


def _started(command: list[str], place: str, answer: Path) -> subprocess.Popen[bytes]:
    """As `pyspark.java_gateway.launch_gateway` does. Temporary files go to `place`, unless a setting says another."""
    environment = {
        **os.environ,
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer),
        "JAVA_TOOL_OPTIONS": f'-Djava.io.tmpdir="{place}" {os.environ.get("JAVA_TOOL_OPTIONS", "")}'.strip(),
    }
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)


def _read_answer(answer: Path, pid: int) -> Connection:
    found = answer.read_bytes()
    port, length = struct.unpack_from(">ii", found)
    return Connection(port, found[8 : 8 + length].decode(), pid)


def _ended(process: subprocess.Popen[bytes]) -> None:
    """In order, so that Spark removes its temporary folders."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(_ORDERLY_SECONDS)
    except subprocess.TimeoutExpired:
        _killed(process)


def _killed(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


if __name__ == "__main__":
    # the settings may hold secrets: they come through the pipe, not in the command line
    Keeper(JvmFolder(Path(sys.argv[1]))).keep(json.load(sys.stdin))
