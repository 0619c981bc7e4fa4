"""Drives pages in headless Chromium through the DevTools protocol: text, clicks, screenshots."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# As root, Chromium needs --no-sandbox. The other flags prevent requests to hosts that a closed network cannot reach.
_FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
    "--remote-debugging-port=0",
]
_PATIENCE_SECONDS = 120.0
# `innerText` excludes hidden and blank nodes. Comparisons ignore case, because CSS changes some text to upper case.
_TEXT = "document.body ? document.body.innerText : ''"


class Page:
    """One tab."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.call("Page.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a DevTools command and returns its result."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self._socket.recv(timeout=_PATIENCE_SECONDS))
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                found: dict[str, Any] = answer["result"]
                return found

    def evaluated(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def open(self, address: str, *texts: str, size: tuple[int, int] = (1500, 1000)) -> None:
        """Loads a page and waits until it shows all these texts, ignoring case."""
        width, height = size
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=address)
        self.wait_for(*texts)

    def text(self) -> str:
        return str(self.evaluated(_TEXT))

    def wait_for(self, *texts: str) -> None:
        until = time.monotonic() + _PATIENCE_SECONDS
        while missing := [text for text in texts if text.lower() not in self.text().lower()]:
            assert time.monotonic() < until, (
                f"{self.evaluated('location.href')} lacks {missing}; it has:\n{self.text()}"
            )
            time.sleep(0.3)

    def click(self, text: str) -> None:
        """Waits for an element with exactly this text, and clicks the innermost one."""
        find = (
            "[...document.querySelectorAll('a, button, [role=tab], [role=button], span, div')]"
            f".filter(found => found.innerText && found.innerText.trim() === {json.dumps(text)}).pop()"
        )
        until = time.monotonic() + _PATIENCE_SECONDS
        while not self.evaluated(f"(found => found ? (found.click(), true) : false)({find})"):
            assert time.monotonic() < until, f"nothing says {text!r}:\n{self.text()}"
            time.sleep(0.3)

    def show(self, text: str) -> None:
        """Scrolls to the innermost element with exactly this text."""
        find = (
            f"[...document.querySelectorAll('*')].filter(found => found.innerText?.trim() === {json.dumps(text)}).pop()"
        )
        self.evaluated(f"({find}).scrollIntoView()")

    def replace(self, text: str, other: str) -> None:
        """Replaces a text on the page, for screenshots."""
        nodes = "document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)"
        change = f"walk.currentNode.data = walk.currentNode.data.replaceAll({json.dumps(text)}, {json.dumps(other)})"
        self.evaluated(f"(walk => {{ while (walk.nextNode()) {change} }})({nodes})")

    def settle(self) -> None:
        """Waits until two screenshots a second apart are equal, at most ten seconds: some pages have a clock."""
        before, now = b"", self._drawn()
        until = time.monotonic() + 10
        while now != before and time.monotonic() < until:
            time.sleep(1)
            before, now = now, self._drawn()

    def picture(self, path: Path) -> None:
        path.write_bytes(self._drawn())

    def _drawn(self) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """Starts a browser with its profile in the folder and yields a tab. Ends the browser with the context."""
    assert CHROMIUM is not None, "chromium is not installed"
    profile.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with connect(_tab(process, profile), max_size=None) as socket:
            yield Page(socket)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _tab(process: subprocess.Popen[bytes], profile: Path) -> str:
    """Waits for the browser and returns the WebSocket address of its tab."""
    port_file = profile / "DevToolsActivePort"
    until = time.monotonic() + _PATIENCE_SECONDS
    while not (port_file.exists() and len(port_file.read_text().splitlines()) == 2):
        assert process.poll() is None, f"chromium has ended with {process.returncode}"
        assert time.monotonic() < until, "chromium did not write its port"
        time.sleep(0.2)
    port = port_file.read_text().splitlines()[0]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=_PATIENCE_SECONDS) as answer:
        tabs = json.load(answer)
    return str(next(tab for tab in tabs if tab["type"] == "page")["webSocketDebuggerUrl"])
