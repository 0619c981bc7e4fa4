"""A proxy before an object store, which answers some requests itself: as a store with faults does."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, str]
"""Status and S3's code of the error."""
_OF_ONE_CONNECTION = {"connection", "transfer-encoding", "keep-alive", "server", "date"}


@dataclass
class FaultyStore:
    url: str
    bucket: str = ""
    fault: Callable[[str, str], Answer | None] = lambda method, path: None
    """(method, path) of a request → the answer in place of the store's, or None."""
    requests: int = 0
    """Requests since the start."""


@contextmanager
def faulty_store(url: str) -> Iterator[FaultyStore]:
    """A proxy of the store at `url` (`http://host:port`)."""
    store = FaultyStore("")
    host = url.removeprefix("http://")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def _answer(self) -> None:
            store.requests += 1
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if answer := store.fault(self.command, self.path):
                status, code = answer
                text = f"<Error><Code>{code}</Code><Message>said by the test</Message></Error>".encode()
                self._send(status, {"Content-Type": "application/xml"}, b"" if self.command == "HEAD" else text)
                return
            connection = http.client.HTTPConnection(host, timeout=60)
            try:
                connection.request(self.command, self.path, body, dict(self.headers))
                found = connection.getresponse()
                content = found.read()
                headers = {name: value for name, value in found.getheaders() if name.lower() not in _OF_ONE_CONNECTION}
                self._send(found.status, headers, content)
            finally:
                connection.close()

        def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
            if self.command != "HEAD":
                headers = {name: value for name, value in headers.items() if name.lower() != "content-length"}
                headers["Content-Length"] = str(len(content))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815 - the names that the class expects

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        store.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield store
        finally:
            server.shutdown()
