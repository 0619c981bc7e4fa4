"""A proxy before an object store, which answers some requests itself, as a store with faults does.

It is a process of its own: delta-rs holds Python's lock while it waits for some answers.

    python -m cdc_pipeline_tests.support.servers.faulty_store PORT URL
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cdc_pipeline_tests.local_kafka.ports import free_ports
from cdc_pipeline_tests.support.servers.object_store import wait_for

_CONTROL = "/control-of-the-proxy"
_OF_ONE_CONNECTION = {"connection", "transfer-encoding", "keep-alive", "server", "date", "content-length"}


@dataclass(frozen=True)
class Fault:
    status: int
    code: str
    """S3's."""
    after: int = 0
    """So many requests are answered by the store first."""
    every: int = 1
    """Of the following requests, each one with this number is answered by the proxy."""


@dataclass(frozen=True)
class FaultyStore:
    url: str
    bucket: str

    def answer_with(self, fault: Fault | None) -> None:
        """Requests from now on; None: all go to the store."""
        content = json.dumps(None if fault is None else asdict(fault)).encode()
        request = urllib.request.Request(f"{self.url}{_CONTROL}", content, method="PUT")
        with urllib.request.urlopen(request, timeout=60):
            pass


@contextmanager
def faulty_store(url: str, bucket: str, folder: Path) -> Iterator[FaultyStore]:
    """A proxy of the store at `url` (`http://host:port`)."""
    (port,) = free_ports(1)
    store = FaultyStore(f"http://127.0.0.1:{port}", bucket)
    command = [sys.executable, "-m", __name__, str(port), url.removeprefix("http://")]
    with (
        (folder / "proxy.log").open("wb") as log,
        subprocess.Popen(command, cwd=Path(__file__).parents[3], stdout=log, stderr=log) as server,
    ):
        try:
            wait_for(store.url, server)
            yield store
        finally:
            server.terminate()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store = ""
    """`host:port`."""
    fault: Fault | None = None
    requests = 0
    """Since the fault was set."""

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self) -> None:
        body = self._body()
        if self.path == _CONTROL:
            said = json.loads(body)
            _Handler.requests, _Handler.fault = 0, None if said is None else Fault(**said)
            self._send(200, {}, b"")
            return
        _Handler.requests += 1
        fault, number = _Handler.fault, _Handler.requests
        if fault is not None and number > fault.after and number % fault.every == 0:
            text = f"<Error><Code>{fault.code}</Code><Message>said by the test</Message></Error>"
            self._send(fault.status, {"Content-Type": "application/xml"}, text.encode())
            return
        connection = http.client.HTTPConnection(self.store, timeout=60)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "transfer-encoding"}
            connection.request(self.command, self.path, body, {**headers, "Content-Length": str(len(body))})
            found = connection.getresponse()
            headers = {name: value for name, value in found.getheaders() if name.lower() not in _OF_ONE_CONNECTION}
            if self.command == "HEAD":
                headers["Content-Length"] = found.getheader("Content-Length") or "0"
            self._send(found.status, headers, found.read())
        finally:
            connection.close()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():  # trailers
            pass
        return b"".join(parts)

    def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(content)))
        elif "Content-Length" not in headers:
            self.send_header("Content-Length", "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815 - the names that the class expects


if __name__ == "__main__":
    _Handler.store = sys.argv[2]
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Handler).serve_forever()
