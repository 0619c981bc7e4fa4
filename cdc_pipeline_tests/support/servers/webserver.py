"""Starts Dagster's webserver with this project's definitions, as a process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
LOCATION = "cdc_pipeline"
"""As in workspace.yaml."""
_PATIENCE_SECONDS = 300.0


class Webserver:
    def __init__(self, port: int) -> None:
        self.place = f"127.0.0.1:{port}"

    def page(self, path: str) -> str:
        return f"http://{self.place}{path}"

    def graphql(self, query: str, **variables: Any) -> Any:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(self.page("/graphql"), body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS) as answer:
            found = json.load(answer)
        assert "errors" not in found, found["errors"]
        return found["data"]


@contextmanager
def webserver(home: Path, *target: str, **environment: str) -> Iterator[Webserver]:
    """Starts the webserver with its instance in `home`, created with this project's settings. Ends it with the context.

    `target`: options that select other definitions than workspace.yaml.

    The webserver's environment has its own host and port in CDC_WEBSERVER.
    """
    home.mkdir(exist_ok=True)
    shutil.copy(ROOT / "dagster.yaml", home)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    found = Webserver(port)
    command = [str(Path(sys.executable).with_name("dagster-webserver")), *(target or ("-w", "workspace.yaml"))]
    with (home / "webserver.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "-h", "127.0.0.1", "-p", str(port)],
            env={**os.environ, "DAGSTER_HOME": str(home), "CDC_WEBSERVER": found.place, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=ROOT,
        )
        try:
            _wait(process, found, home / "webserver.log")
            yield found
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                pass
            finally:
                os.killpg(process.pid, signal.SIGKILL)  # its code server
                process.wait()


def _wait(process: subprocess.Popen[bytes], server: Webserver, log: Path) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        assert process.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(server.page("/server_info"), timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.5)
