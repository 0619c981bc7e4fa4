"""Servers that receive alerts: a webhook, which may hang or fail, and an SMTP server."""

from __future__ import annotations

import base64
import json
import socketserver
import ssl
import threading
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

_HOST = "127.0.0.1"
HANGS = 0
"""A status: the server reads the request and does not answer until it stops."""


class Webhook:
    """An HTTP server that answers each POST with `status`. Serves from construction until the end of its context."""

    def __init__(self, status: int = 200, tls: ssl.SSLContext | None = None) -> None:
        self.status, self._scheme = status, "http" if tls is None else "https"
        self.received: list[Any] = []
        """The JSON bodies of the requests that were answered with success."""
        self.requests = 0
        self.stopping = threading.Event()
        self._server = ThreadingHTTPServer((_HOST, 0), _handler(self))
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://{_HOST}:{self._server.server_address[1]}/services/T0/hunter2"

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
    """An SMTP server, which accepts every login. Serves from construction until the end of its context.

    `tls`: for STARTTLS, or for the whole connection if `encrypted`.
    """

    def __init__(self, tls: ssl.SSLContext | None = None, *, encrypted: bool = False) -> None:
        self.tls, self.encrypted = tls, encrypted
        self.refused = ""
        """A recipient that the server refuses."""
        self.quits = True
        """Whether the server answers QUIT as it must."""
        self.mails: list[str] = []
        self.recipients: list[str] = []
        self.logins: list[tuple[str, str]] = []
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
            if server.encrypted and not self._encrypt():
                return
            self._answer("220 ready")
            while line := self.rfile.readline().decode().strip():
                word, _, rest = line.partition(" ")
                self._answer(self._reply(word.upper(), rest))
                if word.upper() == "STARTTLS" and not self._encrypt():
                    return

        def _encrypt(self) -> bool:
            """False if the client does not trust the certificate."""
            assert server.tls is not None
            super().finish()
            try:
                self.request = server.tls.wrap_socket(self.request, server_side=True)
            except OSError:
                return False
            super().setup()
            return True

        def finish(self) -> None:
            super().finish()
            self.request.close()

        def _reply(self, word: str, rest: str) -> str:
            if word == "EHLO":
                return "250-local\r\n250-STARTTLS\r\n250 AUTH PLAIN"
            if word == "AUTH":
                _, user, password = base64.b64decode(rest.split()[1]).decode().split("\0")
                server.logins.append((user, password))
                return "235 ok"
            if word == "RCPT":
                recipient = rest.partition(":")[2].strip("<>")
                if recipient == server.refused:
                    return "550 hunter2"
                server.recipients.append(recipient)
            if word == "QUIT" and not server.quits:
                return "hunter2"
            if word == "DATA":
                self._answer("354 go on")
                server.mails.append(b"".join(iter(self.rfile.readline, b".\r\n")).decode())
            return {"STARTTLS": "220 go on", "QUIT": "221 bye"}.get(word, "250 ok")

        def _answer(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    return Session


def server_certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """A new certificate for 127.0.0.1 that signs itself: its PEM file for clients, and the context of a server."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _HOST)])
    now = datetime.now(timezone.utc)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(_HOST))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, SHA256())
    )
    file, both = folder / "certificate.pem", folder / "server.pem"
    file.write_bytes(certificate.public_bytes(Encoding.PEM))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    both.write_bytes(private + certificate.public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return file, context
