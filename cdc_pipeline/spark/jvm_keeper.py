"""The keeper: a process that keeps a JVM running between runs, and the folder that connects it with the runs.

It is started by the path of this file and imports neither the package nor PySpark, so that it stays small in memory.
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

FREE, TAKEN, ENDING = "free", "taken", "ending"
_TEMPORARY = "temporary-"
_POLL_SECONDS = 0.3
_STOP_SECONDS = 10.0
_MAX_AGE_SECONDS = 6 * 3600.0  # bounds what accumulates in a JVM over many runs
_STATE_BYTES = 128


class NotPrivateError(Exception):
    """Another user owns or may write the folder."""


def require_private(folder: Path) -> None:
    """Creates the folder if missing. Raises NotPrivateError if another user owns or may write it, or it is a symlink."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not folder.is_dir() or folder.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise NotPrivateError(f"{folder} is not a folder that only this user may write")


@dataclass(frozen=True)
class LockState:
    """The content of a lock file, written by the last process that held the lock."""

    state: str = FREE
    """TAKEN: a client uses the JVM. FREE: the last client released it after stopping Spark. ENDING: the keeper kills it."""
    seconds: float = 0.0
    """How long the keeper keeps the JVM after the release."""
    pid: int = 0


@dataclass(frozen=True)
class Connection:
    """Port and secret of the JVM's py4j gateway, and the JVM's process id."""

    port: int
    secret: str
    pid: int


class JvmFolder:
    """The folder of one JVM.

    The client that uses the JVM holds a lock on the file `lock`, and the keeper one on `keeper`. The operating system
    releases a lock when its process ends, also after a kill. Both files contain a `LockState`. They are never removed:
    otherwise a waiting process and a new one could lock two files of the same name.
    """

    def __init__(self, path: Path) -> None:
        """Creates the folder and its parent if missing. Raises NotPrivateError if another user may write one of them."""
        for folder in (path.parent, path):
            require_private(folder)
        self.path = path
        self.log = path / "log"
        self._connection = path / "connection.json"

    def lock(self) -> int | None:
        """Locks the JVM and returns the lock's descriptor; None if another process holds it."""
        return self._try_lock("lock")

    def keeper_lock(self) -> int | None:
        return self._try_lock("keeper")

    def has_keeper(self) -> bool:
        descriptor = self.keeper_lock()
        if descriptor is not None:
            os.close(descriptor)
        return descriptor is None

    def keeper_pid(self) -> int:
        """The process id of the last keeper; 0 if there was none."""
        return _read_state(self.path / "keeper").pid

    def state(self) -> LockState:
        return _read_state(self.path / "lock")

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
        """Removes the connection and temporary files of a keeper that was killed."""
        self.set_connection(None)
        for folder in self.path.glob(f"{_TEMPORARY}*"):
            shutil.rmtree(folder, ignore_errors=True)

    def _try_lock(self, name: str) -> int | None:
        import fcntl

        descriptor = os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor


def write_state(descriptor: int, state: LockState) -> None:
    # one write of a fixed length, so that a kill leaves either the old or the new state
    os.pwrite(descriptor, json.dumps(asdict(state)).encode().ljust(_STATE_BYTES), 0)


def _read_state(file: Path) -> LockState:
    try:
        return LockState(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        return LockState()


class Keeper:
    """Starts a JVM and ends it when it was unused for long enough or is hours old, its client vanished, or on SIGTERM.

    The JVM also ends if the keeper is killed: PySpark's gateway exits when its standard input, a pipe of the keeper, closes.
    """

    def __init__(self, folder: JvmFolder) -> None:
        self._folder = folder
        self._is_terminated = False

    def keep(self, command: list[str]) -> None:
        """Starts `command` as the JVM and returns after it has ended. Does nothing if the folder has a keeper."""
        descriptor = self._folder.keeper_lock()
        if descriptor is None:
            return
        write_state(descriptor, LockState(pid=os.getpid()))
        signal.signal(signal.SIGTERM, self._on_sigterm)
        self._folder.clear()
        # the keeper removes Spark's temporary files, because a killed JVM cannot
        with tempfile.TemporaryDirectory(
            dir=self._folder.path, prefix=_TEMPORARY, ignore_cleanup_errors=True
        ) as folder:
            answer = Path(folder) / "answer"
            process = _start(command, folder, answer)
            try:
                while process.poll() is None and not answer.is_file() and not self._is_terminated:
                    time.sleep(0.05)
                if answer.is_file() and process.poll() is None:
                    self._folder.set_connection(_read_answer(answer, process.pid))
                    self._watch(process)
                lock = self._folder.lock()  # a client that holds it loses its JVM
                self._folder.set_connection(None)
                _stop(process)
                if lock is not None:
                    os.close(lock)
            finally:
                _kill(process)

    def _on_sigterm(self, _signal: int, _frame: FrameType | None) -> None:
        self._is_terminated = True

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        last, started = LockState(), time.monotonic()
        since = started
        while process.poll() is None and not self._is_terminated:
            time.sleep(_POLL_SECONDS)
            lock = self._folder.lock()
            if lock is None:
                since = time.monotonic()
                continue
            state = self._folder.state()
            if state != last:
                last, since = state, time.monotonic()
            # The keeper holds the lock until the JVM has ended, so that no client takes a JVM that is about to end.
            if state.state == TAKEN:
                # The client ended without releasing the JVM. Its last operation may still be writing.
                write_state(lock, LockState(ENDING))
                self._folder.set_connection(None)
                _kill(process)
                write_state(lock, LockState())
            elif time.monotonic() - since >= state.seconds or time.monotonic() - started >= _MAX_AGE_SECONDS:
                self._folder.set_connection(None)
                _stop(process)
            os.close(lock)


def _start(command: list[str], temporary: str, answer: Path) -> subprocess.Popen[bytes]:
    """Starts the JVM as `pyspark.java_gateway.launch_gateway` does. It writes its port and secret to the file `answer`.

    `temporary`: the folder of its temporary files, unless JAVA_TOOL_OPTIONS sets another.
    """
    environment = {
        **os.environ,
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer),
        "JAVA_TOOL_OPTIONS": f'-Djava.io.tmpdir="{temporary}" {os.environ.get("JAVA_TOOL_OPTIONS", "")}'.strip(),
    }
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)


def _read_answer(answer: Path, pid: int) -> Connection:
    content = answer.read_bytes()
    port, length = struct.unpack_from(">ii", content)
    return Connection(port, content[8 : 8 + length].decode(), pid)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Lets the JVM shut down, so that Spark removes its temporary folders; kills it after ten seconds."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


if __name__ == "__main__":
    # read from the pipe, because the command may contain secrets and any user can read a command line
    Keeper(JvmFolder(Path(sys.argv[1]))).keep(json.load(sys.stdin))
