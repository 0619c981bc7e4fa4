"""The salt of the tests, and expected values of masked columns."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import pyarrow.parquet as pq

SALT = "a salt of the tests, long"


def hashed(text: str, salt: str = SALT) -> str:
    return hmac.new(salt.encode(), text.encode(), hashlib.sha256).hexdigest()


def texts(path: Path) -> str:
    """All text in a file. For Parquet: its values and the footer, which has column statistics."""
    if path.suffix != ".parquet":
        return path.read_bytes().decode("utf-8", errors="replace")
    table = pq.read_table(path)  # type: ignore[no-untyped-call]
    return f"{table.to_pydict()} {pq.read_metadata(path).to_dict()}"  # type: ignore[no-untyped-call]
