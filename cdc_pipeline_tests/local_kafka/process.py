"""The broker's process: a JVM with a log file, which does not outlive the process that started it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# A JVM does not notice that its parent is gone. The watcher does: its standard input is a pipe whose other end only the
# parent has, so it ends with the parent, however that died. Linux's PR_SET_PDEATHSIG would be one line less, but it
# strikes when the *thread* that started the child ends, and needs code between fork and exec.
_WATCHER = 'read -r _; kill -9 -"$0" 2>/dev/null'


class BrokerProcess:
    """A command that runs in a session of its own, so that a terminal's Ctrl-C reaches only our process.

    Its output is added to `log`. It is killed when this object is collected and when the interpreter ends.
    """

    def __init__(self, command: list[str], log: Path) -> None:
        with log.open("ab") as output:
            self._log, self._from = log, output.tell()
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self._watcher = _watcher(self._process)
        self._kill = weakref.finalize(self, _killed, self._process, self._watcher)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.poll()

    def stop(self, patience_seconds: float) -> None:
        """Asks it to end, and kills it where it has not ended after `patience_seconds`."""
        if self._kill.alive and self.status is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_seconds)
        self.kill()

    def kill(self) -> None:
        """SIGKILL: it has no time to write or to tell anyone anything."""
        self._kill()

    def telling_line(self) -> str:
        """The line of its own output, without that of earlier starts, which says most about why it does not run."""
        with self._log.open("rb") as log:
            log.seek(self._from)
            lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        for telling in ("Caused by: ", "Exception", "ERROR", "Error", "FATAL"):
            found = [line for line in lines if telling in line and not line.startswith("at ")]
            if found:
                return found[-1] if telling == "Caused by: " else found[0]
        return lines[-1] if lines else "it wrote nothing"


def _watcher(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", _WATCHER, str(process.pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _killed(process: subprocess.Popen[bytes], watcher: subprocess.Popen[bytes]) -> None:
    """The watcher goes first: it would kill whoever has the number of a process that we have already waited for."""
    watcher.kill()
    watcher.wait()
    if watcher.stdin is not None:
        watcher.stdin.close()
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
