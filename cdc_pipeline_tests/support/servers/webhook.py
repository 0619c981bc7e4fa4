"""A server that receives alerts, and may hang or fail."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from typing_extensions import Self

_HOST = "127.0.0.1"
HANGS = 0
"""A status: the server sends its answer byte by byte, until it stops."""


class Webhook:
    """An HTTP server that answers each POST with `status`. Serves from construction until the end of its context."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.received: list[Any] = []
        """The JSON bodies of the requests that were answered with success."""
        self.requests = 0
        self.stopping = threading.Event()
        self._server = ThreadingHTTPServer((_HOST, 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Of Apprise's JSON service."""
        return f"json://user:hunter2@{_HOST}:{self._server.server_address[1]}/services/T0/hunter2?+X-Token=hunter2"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler(webhook: Webhook) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            webhook.requests += 1
            if webhook.status == HANGS:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
                while not webhook.stopping.wait(0.05):
                    self.wfile.write(b"x")
                return
            if webhook.status < 300:
                webhook.received.append(body)
            self.send_response(webhook.status)
            if webhook.status // 100 == 3:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    return Handler
