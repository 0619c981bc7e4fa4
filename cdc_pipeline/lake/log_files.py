"""Whether the files of a Delta log are all there and whole, before anything is built on them.

A disk that fails, or a machine that loses power, can leave a commit's file short, empty or gone. Delta notices most of that
in the middle of a query; an empty file it takes for a commit that did nothing, and one that is gone at the end for one that
never was: rows would be missing and nobody told. For local lakes: object stores and HDFS have a file whole or not at all.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from cdc_pipeline.errors import LakeError

_KINDS = re.compile(r"(\d{20})\.(json|crc|checkpoint\..*)")
_MOST_PARSED = 4 * 2**20
"""Bytes up to which each line of a commit is parsed; of a larger one the first and the last."""


def require_whole_log(table: str) -> None:
    """Raises LakeError, which names the file and what is wrong with it, where the newest commits of the table at this local
    path, those that no checkpoint has, cannot all be read. Nothing is mended."""
    log = Path(table) / "_delta_log"
    for file in _newest_commits(log):
        wrong = _wrong(file)
        # seen while another process commits, a folder may show the later of two files and not the earlier one
        if wrong and (wrong := _wrong(file)):
            raise _damaged(file, wrong)


def _newest_commits(log: Path) -> list[Path]:
    """The files that must be there after the newest checkpoint, by what is there of any kind."""
    try:
        names = os.listdir(log)  # noqa: PTH208 - names are all that is needed
    except (FileNotFoundError, NotADirectoryError):
        return []
    told, checkpoint = -1, -1
    for name in names:
        if found := _KINDS.fullmatch(name):
            told = max(told, int(found[1]))
            checkpoint = max(checkpoint, int(found[1]) if found[2].startswith("checkpoint.") else -1)
    return [log / f"{version:020}.json" for version in range(checkpoint + 1, told + 1)]


def _wrong(file: Path) -> str | None:
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return "is missing, while later files of the log are there"
    if not content.strip():
        return "is empty"
    lines = content.splitlines()
    if len(content) > _MOST_PARSED:
        lines = [lines[0], lines[-1]]
    for line in lines:
        try:
            whole = isinstance(json.loads(line), dict)
        except ValueError:
            whole = False
        if not whole:
            return f"has a line that is no action of Delta's: {line[:60].decode(errors='replace')!r}"
    return None


def _damaged(file: Path, wrong: str) -> LakeError:
    return LakeError(
        f"the Delta log of {file.parent.parent} is damaged: {file.name} {wrong}. Nothing was changed. Put the file back "
        "from a copy of the lake; where there is none, docs/operations.md (A damaged log) says what to do"
    )
