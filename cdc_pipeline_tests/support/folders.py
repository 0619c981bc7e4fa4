"""Writes capture folders byte by byte, and reads folders back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cdc_pipeline_tests.support.messages import EPOCH_MS


def line(payload: str | None = "p", **fields: Any) -> bytes:
    """A record as `kcat -C -J` prints it, with its line end. A field given as `...` is left out."""
    record = {
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "tstype": "create",
        "ts": EPOCH_MS,
        "broker": 0,
        "headers": [],
        "key": None,
        "payload": payload,
        **fields,
    }
    return json.dumps({name: field for name, field in record.items() if field is not ...}).encode() + b"\n"


def folder(place: Path, files: dict[str, bytes]) -> str:
    """Writes the files into the folder, created if missing, and returns its path."""
    place.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (place / name).write_bytes(content)
    return str(place)


def tree(root: Path) -> dict[str, bytes | None] | None:
    """Relative path → bytes of a file or None for a folder. None if `root` does not exist."""
    if not root.exists():
        return None
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in sorted(root.rglob("*"))
    }
