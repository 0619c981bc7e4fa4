"""Saves a screenshot of a page of the UI: starts the webserver, loads the page in headless Chromium, stops both.

    DAGSTER_HOME=$PWD .venv/bin/python scripts/screenshot.py docs/images/asset-graph.png

On Debian install the package `chromium`. The default page is the asset graph of the pipeline `shop`.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

GRAPH = "/locations/__repository__@cdc_pipeline/asset-groups/shop"
# Chromium as root needs --no-sandbox. The others prevent requests to hosts outside a closed network.
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--virtual-time-budget=30000",
]


def main() -> int:
    parser = argparse.ArgumentParser(description="Saves a screenshot of a page of the UI.")
    parser.add_argument("picture", type=Path)
    parser.add_argument("--page", default=GRAPH)
    parser.add_argument("--size", default="2000,1700")
    wanted = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        print("no chromium on PATH; on Debian: apt-get install chromium", file=sys.stderr)
        return 1
    port = _free_port()
    command = [str(Path(sys.executable).with_name("dagster-webserver")), "-w", "workspace.yaml", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(f"http://127.0.0.1:{port}/server_info", seconds=90)
        wanted.picture.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as profile:
            subprocess.run(
                [
                    browser,
                    *FLAGS,
                    f"--user-data-dir={profile}",
                    f"--window-size={wanted.size}",
                    f"--screenshot={wanted.picture.resolve()}",
                    f"http://127.0.0.1:{port}{wanted.page}",
                ],
                check=True,
                timeout=180,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
    finally:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(timeout=20)
        server.kill()
    print(f"{wanted.picture}: {wanted.picture.stat().st_size} bytes")
    return 0


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait_for(address: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())
