"""Rejects tables that were restored to an earlier version with Delta's RESTORE.

RESTORE reverts rows, columns and properties, but not the (writer, version) pairs that make each commit unique
(`lake/delta.py`). The pipeline would therefore never write the reverted rows again.

Delta removes commits from the log after `delta.logRetentionDuration` (30 days): a RESTORE is not found if it is older
and other writers have committed since.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import SparkSession

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta_log import changes_rows, commits_back, read_commit, require_intact_logs, snapshot_of
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.log_files import commits_newest_first, damaged_log
from cdc_pipeline.lake.store import file_names
from cdc_pipeline.mysql.model.quoted_names import quoted


class RestoredTableError(LakeError):
    """Commits of the pipeline were reverted by a RESTORE, or removed with their folder."""


def require_not_restored(lake: Lake, *tables: str) -> None:
    """Raises RestoredTableError if a RESTORE has reverted commits of the pipeline to one of the tables.

    A RESTORE that is undone by another one is accepted. `tables`: paths; those without a table are skipped.
    """
    paths = lake.paths
    for path in tables:
        if paths.has_files and _is_newest_of(path, paths.app_id("")):
            continue
        if (version := _complete_version(lake.spark, path, paths.app_id(""))) is None:
            continue
        is_mirror = path.startswith((f"{paths.home}/mirror/", f"{paths.home}/mirrors/"))
        rebuild = f", or run {paths.pipeline}_rebuild with its name in `tables`" if is_mirror else ""
        raise RestoredTableError(
            f"{path.removeprefix(f'{paths.home}/')} was restored to an earlier version (RESTORE): the content of version "
            f"{version} was expected, and the pipeline would not write the missing rows again. Undo the RESTORE by RESTORE "
            f"TABLE delta.{quoted(path)} TO VERSION AS OF {version}, or replace {paths.home} by a copy{rebuild} "
            "(`cdc-pipeline docs operations restore`)",
            pipeline=paths.pipeline,
        )


def foreign_commit(lake: Lake, path: str) -> str | None:
    """The newest commit of another writer that changed rows of the table, as text. None if the log has none, or only before
    a rebuild. What a RESTORE by version has undone does not count."""
    own, undone_after = lake.paths.app_id(""), sys.maxsize
    for version, actions in commits_back(lake.spark, path):
        writers = [action["txn"]["appId"] for action in actions if "txn" in action]
        if any(writer.startswith(f"{own}rebuild:") for writer in writers):
            return None
        is_own = any(writer.startswith(own) for writer in writers)
        if is_own or version > undone_after or not any(map(changes_rows, actions)):
            continue
        info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        operation, target = info.get("operation"), info.get("operationParameters", {}).get("version")
        if operation != "RESTORE" or target is None:
            return f"commit {version} ({operation} by {info.get('engineInfo')}) is not of this pipeline"
        undone_after = int(target)
    return None


def _is_newest_of(path: str, writer: str) -> bool:
    """Whether the newest commit of a table is of `writer`, or there is no table. Asks Delta nothing: a run that follows its
    source looks at each table in each batch."""
    require_intact_logs([path])
    names = file_names(f"{path}/_delta_log")
    newest = next(commits_newest_first(path, names), None)
    if newest is None:
        return not names
    try:
        actions = list(newest.actions())
    except ValueError:
        actions = []
    if not actions:  # `require_intact_logs` does not read a commit that a checkpoint covers
        raise damaged_log(newest, "is not a Delta commit")
    return any(action.get("txn", {}).get("appId", "").startswith(writer) for action in actions)


def _complete_version(spark: SparkSession, path: str, writer: str) -> int | None:
    """The newest version with all commits of `writer`, a prefix of application ids, if a RESTORE has reverted some; None if
    the newest version has them."""
    newest = version = int(snapshot_of(spark, path).version())
    targets: dict[int, int] = {}  # RESTORE → the version that it restored
    while version > 0 and (actions := read_commit(spark, path, version)):
        if any(action.get("txn", {}).get("appId", "").startswith(writer) for action in actions):
            break
        for action in actions:
            if (info := action.get("commitInfo", {})).get("operation") == "RESTORE":
                target = info["operationParameters"].get("version")
                targets[version] = -1 if target is None else int(target)  # -1: RESTORE by timestamp
        version -= 1
    complete = [version]
    for later in range(version + 1, newest + 1):
        if targets.get(later, later - 1) in complete:
            complete.append(later)
    return None if complete[-1] == newest else complete[-1]
