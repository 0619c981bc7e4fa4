"""Secrets: which settings are secret, a string type that hides its value, and the encodings of a value in outputs."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

from cdc_pipeline.errors import SECRET_SETTINGS

HIDDEN = "***"
_MIN_LINE = 16
"""A shorter last line of a key reveals nothing, and could occur in any text."""
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(.*?)-----END", re.DOTALL)


class SecretText(str):
    """A string whose `repr` is hidden, also within mappings, pydantic models and pydantic errors, which use `repr`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{HIDDEN}'"


def is_secret(name: str) -> bool:
    """Whether the values of settings with this name must not appear in any output."""
    return re.search(SECRET_SETTINGS, name) is not None


def jaas_escaped(text: str) -> str:
    """The text as it stands between double quotes in a JAAS entry, where a line end is not allowed."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")


def secret_forms(secrets: Iterable[str]) -> tuple[str, ...]:
    """Each secret, plain and encoded as in JAAS, JSON, Python's `repr`, a URL and Base64.

    Longest first, because one form may contain another. Of a private key also each line, because Java and Python encode line
    ends differently.
    """
    found: set[str] = set()
    for secret in secrets:
        lines = "\n".join(_PRIVATE_KEY.findall(secret)).split()
        for text in (str(secret), *(line for line in lines if len(line) >= _MIN_LINE)):
            found |= _forms(text)
    return tuple(sorted(found - {""}, key=lambda form: (-len(form), form)))


def _forms(text: str) -> set[str]:
    raw, plain = text.encode("utf-8", errors="surrogatepass"), (text, jaas_escaped(text))
    encoded = {base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()}
    encoded |= {form.rstrip("=") for form in encoded}
    # also a JAAS entry within JSON or within another repr
    quoted = {form[1:-1] for found in plain for form in (repr(found), json.dumps(found), _json(found))}
    return {*plain, *quoted, *encoded, quote(raw, safe=""), quote(raw), quote_plus(raw)}


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
