"""Pages in headless Chromium, by its DevTools protocol: what one sees, clicks, and pictures."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
import time
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from websockets.sync.client import ClientConnection, connect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# As root Chromium needs --no-sandbox; the others keep it from asking hosts that a closed network does not reach.
_FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
    "--remote-debugging-port=0",
]
_PATIENCE_SECONDS = 120.0
# Blank text nodes and what is hidden are no part of `innerText`; upper case comes from CSS, so it is not compared.
_TEXT = "document.body ? document.body.innerText : ''"


class Page:
    """One tab."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.call("Page.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the DevTools protocol, and its result."""
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
        """Loads a page and waits until it shows all these texts, whatever their case."""
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
        """Clicks the innermost element with just this text, once it is there."""
        find = (
            "[...document.querySelectorAll('a, button, [role=tab], [role=button], span, div')]"
            f".filter(found => found.innerText && found.innerText.trim() === {json.dumps(text)}).pop()"
        )
        until = time.monotonic() + _PATIENCE_SECONDS
        while not self.evaluated(f"(found => found ? (found.click(), true) : false)({find})"):
            assert time.monotonic() < until, f"nothing says {text!r}:\n{self.text()}"
            time.sleep(0.3)

    def replace(self, text: str, other: str) -> None:
        """Shows another text in the place of this one, for pictures."""
        nodes = "document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)"
        change = f"walk.currentNode.data = walk.currentNode.data.replaceAll({json.dumps(text)}, {json.dumps(other)})"
        self.evaluated(f"(walk => {{ while (walk.nextNode()) {change} }})({nodes})")

    def settle(self) -> None:
        """Waits until the page has been drawn the same twice, a second apart, or for ten seconds: some have a clock."""
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
    """A tab of a browser of its own, with its profile in that folder, until the block ends."""
    assert CHROMIUM is not None, "there is no chromium"
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
    """The address of the tab's socket, once the browser has one."""
    told = profile / "DevToolsActivePort"
    until = time.monotonic() + _PATIENCE_SECONDS
    while not (told.exists() and len(told.read_text().splitlines()) == 2):
        assert process.poll() is None, f"chromium has ended with {process.returncode}"
        assert time.monotonic() < until, "chromium does not say where it listens"
        time.sleep(0.2)
    port = told.read_text().splitlines()[0]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=_PATIENCE_SECONDS) as answer:
        tabs = json.load(answer)
    return str(next(tab for tab in tabs if tab["type"] == "page")["webSocketDebuggerUrl"])
