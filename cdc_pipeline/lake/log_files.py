"""Checks that the commit files of a Delta log are complete before anything is written to the table.

A failing disk or a power loss can leave a commit file truncated, empty or missing. Delta treats an empty file as a commit
without actions, and a missing newest file as a commit that never was: rows would be lost without an error. Only local
lakes need this check, because object stores and HDFS store a file completely or not at all.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cdc_pipeline.errors import LakeError

_COMMIT = re.compile(r"\d{20}\.json")
_LOG_FILE = re.compile(r"(\d{20})\.(json|crc|checkpoint\..*)")
_MAX_PARSED_BYTES = 4 * 2**20
"""Commits up to this size are parsed completely, larger ones only in their first and last line."""


def commits_newest_first(table: str) -> Iterator[Path]:
    """The commit files of a local table, if it has any."""
    log = Path(table) / "_delta_log"
    try:
        names = os.listdir(log)  # noqa: PTH208 - names are all that is needed
    except OSError:
        return iter(())
    # most callers need the newest only, of up to 1,700 files
    return (log / name for name in sorted(filter(_COMMIT.fullmatch, names), reverse=True))


def has_version(table: str, version: int) -> bool:
    """Whether a local table has this version, or a later one."""
    commit = Path(table, "_delta_log", f"{version:020}.json")
    return commit.exists() or next(commits_newest_first(table), Path()).name > commit.name


def has_checksum(table: str) -> bool:
    """Whether the newest commit of a local table has a checksum file, which Spark writes and delta-rs does not."""
    commit = next(commits_newest_first(table), None)
    return commit is not None and commit.with_suffix(".crc").exists()


def read_actions(commit: Path) -> Iterator[dict[str, Any]]:
    """The actions of a commit file, one by one. Raises OSError or ValueError if it cannot be read."""
    with commit.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def require_intact_log(table: str) -> None:
    """Raises LakeError if a commit after the newest checkpoint is missing, empty or not JSON. Changes nothing.

    `table`: local path of the table.
    """
    log = Path(table) / "_delta_log"
    for file in _newest_commits(log):
        # Checked twice: while another process commits, a folder listing may contain a later file but not an earlier one.
        if _damage(file) and (damage := _damage(file)):
            raise damaged_log(file, damage)


def damaged_log(commit: Path, damage: str) -> LakeError:
    """The error of a table with a damaged commit file."""
    return LakeError(
        f"the Delta log of {commit.parent.parent} is damaged: {commit.name} {damage}. Nothing was changed. Restore it from "
        "a backup, or follow `cdc-pipeline docs operations a damaged log`"
    )


def _newest_commits(log: Path) -> list[Path]:
    """The commit files that must exist: all versions after the newest checkpoint up to the newest log file of any kind."""
    try:
        names = os.listdir(log)  # noqa: PTH208 - names are all that is needed
    except (FileNotFoundError, NotADirectoryError):
        return []
    newest, checkpoint = -1, -1
    for name in names:
        if match := _LOG_FILE.fullmatch(name):
            newest = max(newest, int(match[1]))
            checkpoint = max(checkpoint, int(match[1]) if match[2].startswith("checkpoint.") else -1)
    return [log / f"{version:020}.json" for version in range(checkpoint + 1, newest + 1)]


def _damage(file: Path) -> str | None:
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return "is missing, but the log has later files"
    if not content.strip():
        return "is empty"
    lines = content.splitlines()
    if len(content) > _MAX_PARSED_BYTES:
        lines = [lines[0], lines[-1]]
    for line in lines:
        try:
            is_action = isinstance(json.loads(line), dict)
        except ValueError:
            is_action = False
        if not is_action:
            return f"has a line that is not a Delta action: {line[:60].decode(errors='replace')!r}"
    return None
