"""Secrets: a string type that hides its value, and the encodings in which a secret could appear in an output."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

from cdc_pipeline.sources.kafka.jaas import escaped

if TYPE_CHECKING:
    from collections.abc import Iterable

HIDDEN = "***"
_MIN_LINE = 16
"""A shorter last line of a key reveals nothing, and could occur in any text."""
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(.*?)-----END", re.DOTALL)


class SecretText(str):
    """A string whose `repr` is hidden, also within mappings, pydantic models and pydantic errors, which use `repr`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{HIDDEN}'"


def secret_forms(secrets: Iterable[str]) -> tuple[str, ...]:
    """Each secret, plain and encoded as in JAAS, JSON, Python's `repr`, a URL and Base64.

    Longest first, because one form may contain another. Of a private key also each line, because Java and Python encode line
    ends differently.
    """
    found: set[str] = set()
    for secret in secrets:
        for text in (str(secret), *key_lines(secret)):
            found |= _forms(text)
    return tuple(sorted(found - {""}, key=lambda form: (-len(form), form)))


def key_lines(text: str) -> list[str]:
    """The lines of the private keys in a PEM text."""
    inside = "\n".join(match.group(1) for match in _PRIVATE_KEY.finditer(text)).split()
    return [line for line in inside if len(line) >= _MIN_LINE]


def _forms(text: str) -> set[str]:
    raw = text.encode("utf-8", errors="surrogatepass")
    jaas = escaped(text)
    return {
        text,
        jaas,
        repr(str(text))[1:-1],
        json.dumps(text)[1:-1],
        json.dumps(text, ensure_ascii=False)[1:-1],
        # a JAAS entry within JSON or within another repr
        json.dumps(jaas)[1:-1],
        json.dumps(jaas, ensure_ascii=False)[1:-1],
        repr(jaas)[1:-1],
        quote(raw, safe=""),
        quote(raw),
        quote_plus(raw),
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode(),
        base64.b64encode(raw).decode().rstrip("="),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
    }
