"""The token endpoint: who gets a token, and its signature by the published key."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.hashes import SHA256

from cdc_pipeline_tests.local_kafka.token_server import TokenServer


@pytest.fixture(scope="module")
def server() -> Iterator[TokenServer]:
    with TokenServer({"alice": "client+secret%"}, lifetime_seconds=60) as server:
        yield server


def asked(url: str, form: dict[str, str] | None, headers: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    body = None if form is None else urlencode(form).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers or {}), timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def unpacked(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def test_a_token_carries_its_claims_and_the_published_key_signed_it(server: TokenServer) -> None:
    form = {"client_id": "alice", "client_secret": "client+secret%", "scope": "kafka"}
    status, document = asked(server.token_url, {"grant_type": "client_credentials", **form})
    assert status == 200
    assert (document["token_type"], document["expires_in"], document["scope"]) == ("Bearer", 60, "kafka")
    header, claims, signature = document["access_token"].split(".")
    payload = json.loads(unpacked(claims))
    assert (payload["sub"], payload["iss"], payload["aud"]) == ("alice", server.issuer, "local-kafka")
    assert (payload["scope"], payload["exp"] - payload["iat"]) == ("kafka", 60)
    status, keys = asked(server.keys_url, None)
    (key,) = keys["keys"]
    assert json.loads(unpacked(header)) == {"alg": "RS256", "typ": "JWT", "kid": key["kid"]}
    numbers = RSAPublicNumbers(int.from_bytes(unpacked(key["e"]), "big"), int.from_bytes(unpacked(key["n"]), "big"))
    numbers.public_key().verify(unpacked(signature), f"{header}.{claims}".encode(), PKCS1v15(), SHA256())


@pytest.mark.parametrize("sent", ["alice:client%2Bsecret%25", "alice:wrong", "bob:client%2Bsecret%25", "alice:", "no"])
def test_id_and_secret_may_stand_in_the_header(server: TokenServer, sent: str) -> None:
    headers = {"Authorization": f"Basic {base64.b64encode(sent.encode()).decode()}"}
    status, document = asked(server.token_url, {"grant_type": "client_credentials"}, headers)
    right = sent == "alice:client%2Bsecret%25"
    assert (status, document.get("error")) == ((200, None) if right else (401, "invalid_client"))


def test_other_requests_are_refused(server: TokenServer) -> None:
    assert asked(server.token_url, {"grant_type": "password"}) == (400, {"error": "unsupported_grant_type"})
    assert asked(f"{server.issuer}/else", {}) == (404, {"error": "not_found"})
    assert asked(f"{server.issuer}/else", None) == (404, {"error": "not_found"})


def test_a_stopped_server_answers_no_more() -> None:
    with TokenServer({}) as server:
        url = server.keys_url
    with pytest.raises(urllib.error.URLError):
        asked(url, None)
