"""Runs Dagster's webserver and daemon side by side until Ctrl-C, and leaves no process behind.

`dagster dev` does the first half, but after a SIGTERM its children live on and keep the port.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

HOST = "127.0.0.1"
# Long enough for the webserver to close its connections and its code server; a second Ctrl-C cuts it short.
GRACE_SECONDS = 15.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=3000)
    port = parser.parse_args().port
    if taken(port):
        print(f"[ui] port {port} of {HOST} is in use; choose another one with: make ui PORT=3001", file=sys.stderr)
        return 1
    return served(port, ["-w", "workspace.yaml"])


def served(port: int, workspace: list[str]) -> int:
    """Serves the definitions that `workspace` names, in the options of Dagster's own commands, until a signal asks for the
    end; then 0. 1 where one of the two ended by itself."""
    handle_signals(stop)
    # the sensor of new tables asks this one to load the definitions again
    os.environ.setdefault("CDC_WEBSERVER", f"{HOST}:{port}")
    bin_directory = Path(sys.executable).parent
    commands = {
        "webserver": [str(bin_directory / "dagster-webserver"), *workspace, "-h", HOST, "-p", str(port)],
        "daemon": [str(bin_directory / "dagster-daemon"), "run", *workspace],
    }
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, command in commands.items():
            # A session each: the terminal's Ctrl-C then reaches this process only, which stops both in order, and
            # whatever a child starts can be found by its process group.
            running[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        print(f"[ui] http://{HOST}:{port} in some seconds; Ctrl-C stops it", flush=True)
        return wait_for_any(running)
    except Stopped:
        print("\n[ui] stopping ...", flush=True)
        return 0
    finally:
        end(list(running.values()))


class Stopped(BaseException):
    """A signal asked for the end."""


def stop(_signal: int, _frame: FrameType | None) -> None:
    raise Stopped


def handle_signals(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)


def taken(port: int) -> bool:
    with socket.socket() as probe:
        # As the webserver does; without it a port that was closed a moment ago counts as taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
    return False


def wait_for_any(running: dict[str, subprocess.Popen[bytes]]) -> int:
    """One without the other is of no use, so the first that ends, ends both."""
    while True:
        for name, process in running.items():
            status = process.poll()
            if status is not None:
                print(f"[ui] the {name} ended by itself with status {status}", file=sys.stderr)
                return 1
        time.sleep(0.2)


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Asks the two first, and then ends everything that is left of their process groups."""
    try:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + GRACE_SECONDS
        for process in processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                print(f"[ui] {process.args!r} did not stop in {GRACE_SECONDS:g} s, killing it", file=sys.stderr)
    except Stopped:
        pass  # a second Ctrl-C: no more patience
    handle_signals(signal.SIG_IGN)
    for process in processes:
        with contextlib.suppress(ProcessLookupError):  # nothing left, as it should be
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
