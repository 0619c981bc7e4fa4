"""The process of the broker: a JVM with a log file that ends with its parent process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import weakref
from pathlib import Path

# A JVM does not notice the end of its parent. The watcher does: only the parent has the other end of its standard input,
# so it reads end-of-file when the parent ends in any way. Linux's PR_SET_PDEATHSIG reacts to the end of the *thread* that
# started the child, and needs code between fork and exec.
_WATCHER = 'read -r _; kill -9 -"$0" 2>/dev/null'


class BrokerProcess:
    """A command in its own session, so that Ctrl-C in a terminal does not reach it.

    Appends its output to `log`. The process is killed when this object is garbage-collected or the interpreter exits.
    """

    def __init__(self, command: list[str], log: Path) -> None:
        with log.open("ab") as output:
            self._log, self._from = log, output.tell()
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self._watcher = _start_watcher(self._process)
        self._kill = weakref.finalize(self, _kill_both, self._process, self._watcher)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status; None while the process runs."""
        return self._process.poll()

    def stop(self, patience_seconds: float) -> None:
        """Sends SIGTERM, and SIGKILL after `patience_seconds`."""
        if self._kill.alive and self.status is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_seconds)
        self.kill()

    def kill(self) -> None:
        """Sends SIGKILL."""
        self._kill()

    def error_line(self) -> str:
        """The line of its output that best explains a failed start. Ignores output of earlier starts."""
        with self._log.open("rb") as log:
            log.seek(self._from)
            lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        for marker in ("Caused by: ", "Exception", "ERROR", "Error", "FATAL"):
            matches = [line for line in lines if marker in line and not line.startswith("at ")]
            if matches:
                return matches[-1] if marker == "Caused by: " else matches[0]
        return lines[-1] if lines else "no output"


def _start_watcher(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", _WATCHER, str(process.pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _kill_both(process: subprocess.Popen[bytes], watcher: subprocess.Popen[bytes]) -> None:
    """Kills the watcher first: it could kill another process that reuses the pid."""
    watcher.kill()
    watcher.wait()
    if watcher.stdin is not None:
        watcher.stdin.close()
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
