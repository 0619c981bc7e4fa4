"""Checks that the commit files of a Delta log are complete before anything is written to the table.

A failing disk or a power loss can leave a commit file truncated, empty or missing. Delta treats an empty file as a commit
without actions, and a missing newest file as a commit that never was: rows would be lost without an error. Only local
lakes need this check, because object stores and HDFS store a file completely or not at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.store import file_names, has_file, read_file

_COMMIT = re.compile(r"\d{20}\.json")
_LOG_FILE = re.compile(r"(\d{20})\.(json|crc|checkpoint\..*)")
_MAX_PARSED_BYTES = 4 * 2**20
"""Commits up to this size are parsed completely, larger ones only in their first and last line."""


@dataclass(frozen=True)
class CommitFile:
    """The file of one commit."""

    table: str
    """Path of the table, local or on S3."""
    version: int

    @property
    def name(self) -> str:
        return f"{self.version:020}.json"

    def actions(self) -> Iterator[dict[str, Any]]:
        """The actions, one by one. Raises OSError or ValueError if the file cannot be read."""
        content = read_file(_log(self.table), self.name)
        if content is None:
            raise FileNotFoundError(f"{self.table} has no commit {self.version}")
        for line in content.splitlines():
            yield json.loads(line)


def commits_newest_first(table: str, names: Iterable[str] | None = None) -> Iterator[CommitFile]:
    """The commit files of a table, if it has any. Its log is listed at once, unless `names` are its files."""
    try:
        names = file_names(_log(table)) if names is None else names
    except OSError:
        return iter(())
    # most callers need the newest only, of up to 1,700 files
    found = sorted(filter(_COMMIT.fullmatch, names), reverse=True)
    return (CommitFile(table, int(name.removesuffix(".json"))) for name in found)


def has_version(table: str, version: int) -> bool:
    """Whether a table has this version, or a later one."""
    if has_file(_log(table), CommitFile(table, version).name):
        return True
    newest = next(commits_newest_first(table), None)
    return newest is not None and newest.version > version


def has_checksum(table: str) -> bool:
    """Whether the newest commit has a checksum file, which Spark writes and delta-rs does not. The folder is listed once."""
    names = set(file_names(_log(table)))
    newest = max(filter(_COMMIT.fullmatch, names), default=None)
    return newest is not None and newest.replace(".json", ".crc") in names


def require_intact_log(table: str) -> None:
    """Raises LakeError if a commit after the newest checkpoint is missing, empty or not JSON. Changes nothing.

    `table`: local path of the table.
    """
    for commit in _newest_commits(table):
        # Checked twice: while another process commits, a folder listing may contain a later file but not an earlier one.
        if _damage(commit) and (damage := _damage(commit)):
            raise damaged_log(commit, damage)


def damaged_log(commit: CommitFile, damage: str) -> LakeError:
    """The error of a table with a damaged commit file."""
    return LakeError(
        f"the Delta log of {commit.table} is damaged: {commit.name} {damage}. Nothing was changed. Restore it from "
        "a backup, or follow `cdc-pipeline docs operations a damaged log`"
    )


def _log(table: str) -> str:
    return f"{table}/_delta_log"


def _newest_commits(table: str) -> list[CommitFile]:
    """The commit files that must exist: all versions after the newest checkpoint up to the newest log file of any kind."""
    newest, checkpoint = -1, -1
    for name in file_names(_log(table)):
        if match := _LOG_FILE.fullmatch(name):
            newest = max(newest, int(match[1]))
            checkpoint = max(checkpoint, int(match[1]) if match[2].startswith("checkpoint.") else -1)
    return [CommitFile(table, version) for version in range(checkpoint + 1, newest + 1)]


def _damage(commit: CommitFile) -> str | None:
    content = read_file(_log(commit.table), commit.name)
    if content is None:
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
