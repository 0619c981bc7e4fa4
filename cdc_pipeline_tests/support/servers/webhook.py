"""Servers that receive alerts: a webhook, which may hang or fail, and an SMTP server without encryption."""

from __future__ import annotations

import json
import socketserver
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

_HOST = "127.0.0.1"
HANGS = 0
"""A status: the server reads the request and does not answer until it stops."""


class Webhook:
    """An HTTP server that answers each POST with `status`. Serves from construction until `stop`."""

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
        return f"http://{_HOST}:{self._server.server_address[1]}/services/T0/hunter2"

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
                webhook.stopping.wait(30)
                return
            if webhook.status < 300:
                webhook.received.append(body)
            self.send_response(webhook.status)
            if webhook.status // 100 == 3:
                self.send_header("Location", webhook.url)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    return Handler


class MailServer:
    """An SMTP server without encryption and login. Serves from construction until `stop`."""

    def __init__(self) -> None:
        self.mails: list[str] = []
        self.recipients: list[str] = []
        self._server = socketserver.ThreadingTCPServer((_HOST, 0), _session(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _session(server: MailServer) -> type[socketserver.StreamRequestHandler]:
    class Session(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._answer("220 ready")
            while line := self.rfile.readline().decode().strip():
                word = line.split()[0].upper()
                if word == "RCPT":
                    server.recipients.append(line.partition(":")[2].strip("<>"))
                if word == "DATA":
                    self._answer("354 go on")
                    lines = iter(self.rfile.readline, b".\r\n")
                    server.mails.append(b"".join(lines).decode())
                self._answer("221 bye" if word == "QUIT" else "250 ok")

        def _answer(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    return Session
