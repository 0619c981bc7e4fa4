"""Extracts certificates and keys from PEM texts, in the form that Java reads."""

from __future__ import annotations

import re
from pathlib import Path

from cdc_pipeline.errors import SourceError

_PLAIN_KEY = "-----BEGIN PRIVATE KEY-----"


def certificates(text: str, option: str) -> str:
    """The certificates in a PEM text, without a private key next to them.

    Raises SourceError with the option's name if there are none.
    """
    return "".join(_blocks(text, option, "CERTIFICATE"))


def private_key(text: str, option: str, password: str | None) -> str:
    """The private key in a PEM text, as unencrypted PKCS#8.

    Java 17 reads no other format: it cannot read keys that OpenSSL encrypts with PBES2. Raises SourceError with the option's
    name if there is no key or it cannot be decrypted.
    """
    key = _blocks(text, option, "PRIVATE KEY")[0]
    if key.startswith(_PLAIN_KEY):
        return key
    # slow import, which a key in Java's format does not need
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

    is_encrypted = "ENCRYPTED" in key
    try:
        opened = load_pem_private_key(key.encode(), password.encode() if password and is_encrypted else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        reason = (
            "it is encrypted, and ssl.key.password does not decrypt it"
            if is_encrypted
            else "it is damaged, or of an unknown type"
        )
        raise SourceError(f"{option}: the private key cannot be read: {reason}") from None
    return opened.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def pem_text(location: str, option: str) -> str:
    """The text of a file. Raises SourceError with the option's name if it cannot be read."""
    try:
        return Path(location).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text; PEM is expected"
        raise SourceError(f"{option}: {location!r} cannot be read: {reason}") from None


def _blocks(text: str, option: str, kind: str) -> list[str]:
    mark = rf"(?:[A-Z]+ )*{kind}-----"
    found = [match.group() + "\n" for match in re.finditer(rf"-----BEGIN {mark}.*?-----END {mark}", text, re.DOTALL)]
    if not found:
        raise SourceError(f"{option}: no {kind.lower()} in PEM format found")
    return found
