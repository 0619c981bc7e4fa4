"""Replaces files as a whole."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomically(file: Path, text: str) -> None:
    """Replaces the file by a rename, so that readers see either the old or the new text, never a part."""
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.stem}-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    Path(name).replace(file)
