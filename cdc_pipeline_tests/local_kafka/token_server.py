"""An OAuth 2 server for OAUTHBEARER: issues signed JWTs for client credentials, and publishes its keys (JWKS)."""

from __future__ import annotations

import base64
import json
import secrets
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import parse_qs, unquote_plus, urlsplit

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from typing_extensions import Self

_HOST = "127.0.0.1"


class TokenServer:
    """Issues tokens to `clients` (id → secret). Serves from construction until `stop`; also a context manager.

    `lifetime_seconds` of a token: a short one shows whether a client refreshes it in time.
    """

    def __init__(
        self, clients: Mapping[str, str], *, lifetime_seconds: float = 3600.0, audience: str = "local-kafka"
    ) -> None:
        self.clients = dict(clients)
        self.lifetime_seconds = lifetime_seconds
        self.audience = audience
        self.issued: list[str] = []
        """The client id of each issued token."""
        self._key = generate_private_key(public_exponent=65537, key_size=2048)
        self._key_id = secrets.token_hex(8)
        self._server = ThreadingHTTPServer((_HOST, 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stops the server. Further connections are refused."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def issuer(self) -> str:
        return f"http://{_HOST}:{self._server.server_port}"

    @property
    def token_url(self) -> str:
        """For clients: `sasl.oauthbearer.token.endpoint.url`."""
        return f"{self.issuer}/token"

    @property
    def keys_url(self) -> str:
        """For the broker: `sasl.oauthbearer.jwks.endpoint.url`."""
        return f"{self.issuer}/keys"

    def keys(self) -> dict[str, object]:
        """The JWKS document."""
        numbers = self._key.public_key().public_numbers()
        modulus, exponent = (
            _base64(number.to_bytes((number.bit_length() + 7) // 8, "big")) for number in (numbers.n, numbers.e)
        )
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": self._key_id, "n": modulus, "e": exponent}
        return {"keys": [key]}

    def answer(self, client: str, secret: str, grant: str, scope: str) -> tuple[int, dict[str, object]]:
        """HTTP status and document for a token request."""
        if grant != "client_credentials":
            return 400, {"error": "unsupported_grant_type"}
        if not secrets.compare_digest(self.clients.get(client, "").encode(), secret.encode()) or not secret:
            return 401, {"error": "invalid_client"}
        self.issued.append(client)
        document: dict[str, object] = {
            "access_token": self.token(client, scope),
            "token_type": "Bearer",
            "expires_in": max(1, int(self.lifetime_seconds)),
        }
        return 200, {**document, "scope": scope} if scope else document

    def token(self, subject: str, scope: str) -> str:
        """A JWT for `subject`, signed with RS256."""
        now = time.time()
        header = {"alg": "RS256", "typ": "JWT", "kid": self._key_id}
        claims = {
            "iss": self.issuer,
            "sub": subject,
            "aud": self.audience,
            "iat": int(now),
            "exp": int(now + self.lifetime_seconds),
            "jti": secrets.token_hex(8),
            **({"scope": scope} if scope else {}),
        }
        signed = ".".join(_base64(json.dumps(part).encode()) for part in (header, claims))
        return f"{signed}.{_base64(self._key.sign(signed.encode(), PKCS1v15(), SHA256()))}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _handler(server: TokenServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if urlsplit(self.path).path == "/keys":
                self._send(200, server.keys())
            else:
                self._send(404, {"error": "not_found"})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode(errors="replace")
            if urlsplit(self.path).path != "/token":
                self._send(404, {"error": "not_found"})
                return
            form = {name: values[0] for name, values in parse_qs(body).items()}
            client, secret = _basic(self.headers.get("Authorization", "")) or (
                form.get("client_id", ""),
                form.get("client_secret", ""),
            )
            self._send(*server.answer(client, secret, form.get("grant_type", ""), form.get("scope", "")))

        def _send(self, status: int, document: Mapping[str, object]) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """No log: the default writes a line per request to standard error."""

    return Handler


def _basic(authorization: str) -> tuple[str, str] | None:
    """Id and secret of a `Basic` Authorization header; None for other headers.

    RFC 6749 form-encodes both. Not all clients do, but this differs only for secrets with `%` or `+`.
    """
    kind, _, value = authorization.partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        client, _, secret = base64.b64decode(value, validate=True).decode().partition(":")
    except ValueError:
        return None
    return unquote_plus(client), unquote_plus(secret)
