"""Files beside the tables of a lake that is a local folder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_at_once(file: Path, text: str) -> None:
    """Writes the file in one rename: who reads it finds all of the text, or all of what was there."""
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.stem}-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    Path(name).replace(file)
