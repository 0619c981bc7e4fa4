"""Certificates and keys in PEM, as text that Java reads."""

from __future__ import annotations

import re
from pathlib import Path

from cdc_pipeline.errors import SourceError

_PLAIN_KEY = "-----BEGIN PRIVATE KEY-----"


def certificates(text: str, option: str) -> str:
    """The certificates in a text that may have more: what is told of them must not carry the key that stands beside them.
    Raises SourceError, which names the option, where there are none."""
    return "".join(_blocks(text, option, "CERTIFICATE"))


def private_key(text: str, option: str, password: str | None) -> str:
    """The private key in a text that may have more, in PKCS#8 and without its password: Java 17 reads no other key, not
    even one that is locked as OpenSSL does it now (PBES2). Raises SourceError, which names the option, where there is none,
    or it does not open."""
    key = _blocks(text, option, "PRIVATE KEY")[0]
    if key.startswith(_PLAIN_KEY):
        return key
    # only here: who has a key as Java wants it does not wait for this import
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

    is_locked = "ENCRYPTED" in key
    try:
        opened = load_pem_private_key(key.encode(), password.encode() if password and is_locked else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        reason = (
            "it is locked, and ssl.key.password does not open it" if is_locked else "it is damaged, or of no known kind"
        )
        raise SourceError(f"{option}: the private key cannot be read: {reason}") from None
    return opened.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def pem_text(location: str, option: str) -> str:
    """The text of a file. Raises SourceError, which names the option, where it cannot be read."""
    try:
        return Path(location).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text, PEM is expected"
        raise SourceError(f"{option}: {location!r} cannot be read: {reason}") from None


def _blocks(text: str, option: str, kind: str) -> list[str]:
    mark = rf"(?:[A-Z]+ )*{kind}-----"
    found = [match.group() + "\n" for match in re.finditer(rf"-----BEGIN {mark}.*?-----END {mark}", text, re.DOTALL)]
    if not found:
        raise SourceError(f"{option}: no {kind.lower()} in PEM form is there")
    return found
