"""Reads the captures in `data/`."""

from __future__ import annotations

import gzip
from pathlib import Path


def capture_lines(folder: Path) -> list[str]:
    """All lines of a capture, in the order of its files."""
    lines: list[str] = []
    for part in sorted(folder.glob("part-*.jsonl.gz")):
        with gzip.open(part, "rt", encoding="utf-8") as stream:
            lines += stream.read().rstrip("\n").split("\n")  # not splitlines(): payloads hold U+0085
    return lines
