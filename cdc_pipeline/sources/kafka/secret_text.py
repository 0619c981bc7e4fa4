"""Texts that must be shown nowhere, and the forms in which one could show up all the same."""

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
_SHORTEST_LINE = 16
"""A key's shorter last line says nothing of it, and may be part of any text."""
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(.*?)-----END", re.DOTALL)


class SecretText(str):
    """A text like any other, except that `repr` does not show it: not by itself, nor in a mapping, a model or an error
    of pydantic's, which all show their values by `repr`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{HIDDEN}'"


def told_forms(secrets: Iterable[str]) -> tuple[str, ...]:
    """Each secret as it is and as it stands in JAAS, JSON, Python's repr, a URL and Base64; longest first, because one may
    be part of another. Of a private key each line too, since Java and Python write line ends in other ways."""
    found: set[str] = set()
    for secret in secrets:
        for text in (str(secret), *key_lines(secret)):
            found |= _forms(text)
    return tuple(sorted(found - {""}, key=lambda form: (-len(form), form)))


def key_lines(text: str) -> list[str]:
    """The lines of the private keys in a PEM text."""
    inside = "\n".join(match.group(1) for match in _PRIVATE_KEY.finditer(text)).split()
    return [line for line in inside if len(line) >= _SHORTEST_LINE]


def _forms(text: str) -> set[str]:
    raw = text.encode("utf-8", errors="surrogatepass")
    jaas = escaped(text)
    return {
        text,
        jaas,
        repr(str(text))[1:-1],
        json.dumps(text)[1:-1],
        json.dumps(text, ensure_ascii=False)[1:-1],
        # a JAAS line within JSON, or within another repr
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
