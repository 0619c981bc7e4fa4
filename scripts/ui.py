"""Runs Dagster's webserver and daemon until Ctrl-C, then ends all their processes.

`dagster dev` is not used, because its children survive a SIGTERM and keep the port.
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
from collections.abc import Callable
from pathlib import Path
from types import FrameType

HOST = "127.0.0.1"
# Enough for the webserver to close its connections and code server. A second Ctrl-C ends the wait.
GRACE_SECONDS = 15.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=3000)
    port = parser.parse_args().port
    if is_port_in_use(port):
        print(f"[ui] port {port} of {HOST} is in use; choose another one with: make ui PORT=3001", file=sys.stderr)
        return 1
    return serve(port, ["-w", "workspace.yaml"])


def serve(port: int, workspace: list[str]) -> int:
    """Runs both until a signal: returns 0 then, and 1 if one of them ended by itself.

    `workspace`: options of Dagster's commands that name the definitions.
    """
    handle_signals(stop)
    # the webserver that the sensor <pipeline>_new_tables asks to reload the definitions
    os.environ.setdefault("CDC_WEBSERVER", f"{HOST}:{port}")
    bin_directory = Path(sys.executable).parent
    commands = {
        "webserver": [str(bin_directory / "dagster-webserver"), *workspace, "-h", HOST, "-p", str(port)],
        "daemon": [str(bin_directory / "dagster-daemon"), "run", *workspace],
    }
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, command in commands.items():
            # Separate sessions: Ctrl-C reaches this process only, which stops both in order, and the process group
            # of each finds everything that it started.
            running[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        print(f"[ui] http://{HOST}:{port} is ready in a few seconds; Ctrl-C stops it", flush=True)
        return wait_for_any(running)
    except Stopped:
        print("\n[ui] stopping ...", flush=True)
        return 0
    finally:
        end(list(running.values()))


class Stopped(BaseException):
    """Raised by a signal."""


def stop(_signal: int, _frame: FrameType | None) -> None:
    raise Stopped


def handle_signals(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)


def is_port_in_use(port: int) -> bool:
    with socket.socket() as probe:
        # As the webserver does; otherwise a port that was just closed counts as in use.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
    return False


def wait_for_any(running: dict[str, subprocess.Popen[bytes]]) -> int:
    """Returns 1 when the first process ends: neither is useful alone."""
    while True:
        for name, process in running.items():
            status = process.poll()
            if status is not None:
                print(f"[ui] the {name} ended by itself with status {status}", file=sys.stderr)
                return 1
        time.sleep(0.2)


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Interrupts both, waits for them, then kills what remains of their process groups."""
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
        pass  # a second Ctrl-C: stop waiting
    handle_signals(signal.SIG_IGN)
    for process in processes:
        with contextlib.suppress(ProcessLookupError):  # the normal case: nothing remains
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
