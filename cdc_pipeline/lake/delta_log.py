"""Reads a table's Delta log and snapshots through py4j, without Spark jobs where possible.

Delta writes a checksum file beside each commit, with the table's size, its transaction versions and, for small tables, its
files. Reading it is cheap, whereas the snapshot's own methods for these values query the whole log. Each py4j call costs
about a millisecond, so composite values are fetched as one JSON text.
"""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from cdc_pipeline.lake.log_files import commits_newest_first, require_intact_log
from cdc_pipeline.lake.paths import CONTROL_TABLES, LakePaths, has_files, is_local_path, is_s3_path
from cdc_pipeline.spark.jvm import has_jvm, jvm, jvm_session

_CHECKED: set[str] = set()
"""Paths of the tables whose logs this process has found complete."""
_WRITTEN_HERE: dict[str, int] = {}
"""Folder of a pipeline → when (ms) this process became its only writer."""
_BEGUN: dict[str, int] = {}
"""Folder of a pipeline → when (ms) the newest context of `only_writer` began, or the one that it continues."""
_SNAPSHOTS: dict[str, int] = {}
"""Path of a table → the beginning of the context of `only_writer` in which Delta has read its log."""
_COMMITTED_BY_DELTA_RS: set[str] = set()
"""Paths of the tables to which this process has committed without Spark, since Delta's snapshot of them."""


_JAVA_NAMES = {
    "session": "org.apache.spark.sql.classic.SparkSession",
    "delta_log": "org.apache.spark.sql.delta.DeltaLog",
    "option": "scala.Option",
    "converters": "scala.jdk.javaapi.CollectionConverters",
    "path": "org.apache.hadoop.fs.Path",
    "array_list": "java.util.ArrayList",
    "hash_map": "java.util.HashMap",
    "immutable_map": "scala.collection.immutable.Map$.MODULE$.from",
    "set_transaction": "org.apache.spark.sql.delta.actions.SetTransaction",
    "set_properties": "org.apache.spark.sql.delta.DeltaOperations$SetTableProperties",
    "write": "org.apache.spark.sql.delta.DeltaOperations$Write",
    "append": "org.apache.spark.sql.SaveMode.Append",
    "json": "org.apache.spark.sql.delta.util.JsonUtils",
}


@functools.lru_cache(maxsize=1)
def _names(java: Any) -> SimpleNamespace:
    return SimpleNamespace(
        **{name: functools.reduce(getattr, path.split("."), java) for name, path in _JAVA_NAMES.items()}
    )


def log_names(spark: SparkSession) -> SimpleNamespace:
    """`_JAVA_NAMES` of the JVM, looked up once: py4j resolves each part of a dotted name in about a millisecond."""
    return _names(jvm(spark))


def require_intact_logs(paths: Iterable[str]) -> None:
    """Raises LakeError if the log of one of the tables is damaged (`log_files`).

    Checks each table once per process, before its first use: Delta caches what it has read, and may not notice that a
    later file is missing.
    """
    for path in paths:
        if is_local_path(path) and path not in _CHECKED:
            require_intact_log(path)
            _CHECKED.add(path)


def delta_log(spark: SparkSession, path: str) -> Any:
    """Delta's `DeltaLog` of the table. Raises LakeError if its files are damaged."""
    require_intact_logs([path])
    names = log_names(spark)
    # without a checksum, as after a clone, Delta computes the state with the thread's active session
    names.session.setActiveSession(jvm_session(spark))
    return names.delta_log.forTable(jvm_session(spark), path)


@contextlib.contextmanager
def only_writer(paths: LakePaths, *, continues: bool = False) -> Iterator[None]:
    """Within the context, `snapshot_of` lists the log of each of the pipeline's tables once: Delta's cached snapshot has
    the commits of this process. Commits of other writers, such as OPTIMIZE, are then noticed by the next context only.

    Use it with the writer lock. `continues`: what it yields. Does nothing for a lake that has no lock: another run may
    write it.
    """
    if not paths.has_files:
        yield
        return
    if not continues or paths.home not in _BEGUN:
        _BEGUN[paths.home] = time.time_ns() // 1_000_000
    _WRITTEN_HERE[paths.home] = _BEGUN[paths.home]
    try:
        yield
    finally:
        end_only_writer(paths)


def end_only_writer(paths: LakePaths) -> None:
    """Ends the context of `only_writer`: another run may write the lake."""
    _WRITTEN_HERE.pop(paths.home, None)


def only_writer_since(path: str) -> int | None:
    """Since when (ms) only delta-rs in this process can have committed to the table; None if others can have. None for local
    tables, too, whose commits are found without a request."""
    if not is_s3_path(path):
        return None
    for home, since in _WRITTEN_HERE.items():
        name = path.removeprefix(f"{home}/")
        if name != path and (name in CONTROL_TABLES or not has_jvm()):
            return since
    return None


def snapshot_of(spark: SparkSession, path: str) -> Any:
    """The newest snapshot of the table at `path`; its version is -1 if there is no table."""
    log, none = delta_log(spark, path), log_names(spark).option.empty()
    since, is_behind = _written_here_since(path), path in _COMMITTED_BY_DELTA_RS
    _COMMITTED_BY_DELTA_RS.discard(path)  # before the look: a commit meanwhile adds it again
    try:
        listed_since = none if since is None or is_behind else option_of_long(spark, since)
        snapshot = log.update(False, listed_since, none)
    except BaseException:
        _COMMITTED_BY_DELTA_RS.add(path)
        raise
    if since is not None:
        _SNAPSHOTS[path] = since
    return snapshot


def has_snapshot(path: str) -> bool:
    """Whether `snapshot_of` returns the newest snapshot without a look at the log."""
    since = _written_here_since(path)
    return since is not None and _SNAPSHOTS.get(path) == since and path not in _COMMITTED_BY_DELTA_RS


def file_retention_hours(spark: SparkSession, path: str) -> float:
    """How long the table keeps replaced files: its `delta.deletedFileRetentionDuration`, by default a week."""
    metadata = snapshot_of(spark, path).metadata()
    milliseconds: int = log_names(spark).delta_log.tombstoneRetentionMillis(metadata)
    return milliseconds / 3_600_000


def note_commit_of_delta_rs(path: str) -> None:
    """Call it after a commit of delta-rs to the table: Delta's cached snapshot does not have it."""
    _COMMITTED_BY_DELTA_RS.add(path)


def _written_here_since(path: str) -> int | None:
    """From when on (ms) Delta's snapshot of the table is as good as a new one, but for commits of delta-rs; None if another
    process may write it."""
    for home, since in _WRITTEN_HERE.items():
        # delta-rs commits to control tables, which Delta's cache in the JVM does not notice
        if path.startswith(f"{home}/") and path.removeprefix(f"{home}/") not in CONTROL_TABLES:
            return since
    return None


def option_of_long(spark: SparkSession, value: int) -> Any:
    """Scala's `Some` with a `java.lang.Long`. py4j itself passes a small integer as `java.lang.Integer`."""
    return _option_of_long(jvm(spark), value)


@functools.lru_cache(maxsize=16)
def _option_of_long(java: Any, value: int) -> Any:
    boxed = java.java.util.stream.LongStream.of(value).boxed().findFirst()
    return java.scala.jdk.javaapi.OptionConverters.toScala(boxed)


def snapshot_at(spark: SparkSession, path: str, version: int) -> Any:
    """The table's snapshot at that version."""
    none = log_names(spark).option.empty()
    return delta_log(spark, path).getSnapshotAt(version, none, none, False)


def readable_version(spark: SparkSession, path: str, version: int) -> int | None:
    """The newest version with the rows and metadata of this one, after which only OPTIMIZE and VACUUM have committed.

    None if it cannot be read: the log does not go back so far, or its files were replaced longer ago than the table's
    `delta.deletedFileRetentionDuration` (a week), so that VACUUM may have removed them.
    """
    log, none = delta_log(spark, path), log_names(spark).option.empty()
    newest = snapshot_of(spark, path)
    try:
        log.history().checkVersionExists(version, none, True, False)
    except AnalysisException as error:
        if error.getCondition() == "DELTA_VERSION_NOT_FOUND":
            return None
        raise
    while version < newest.version():
        later = read_commit(spark, path, version + 1)
        if any("metaData" in action or "protocol" in action or changes_rows(action) for action in later):
            replaced_ms = commit_time_ms(spark, path, version + 1)
            kept_ms = log_names(spark).delta_log.tombstoneRetentionMillis(newest.metadata())
            is_kept = replaced_ms is not None and replaced_ms >= time.time_ns() // 1_000_000 - kept_ms
            return version if is_kept else None
        version += 1
    return version


def changes_rows(action: Mapping[str, Any]) -> bool:
    """Whether an action of a commit changes rows. Those of OPTIMIZE do not."""
    return any(action[kind].get("dataChange", True) for kind in ("add", "remove") if kind in action)


def read_commit(spark: SparkSession, path: str, version: int) -> list[dict[str, Any]]:
    """The actions of a commit, as in its file; empty if Delta has removed the file."""
    log, file = delta_log(spark, path), log_names(spark).path(f"{path}/_delta_log/{version:020}.json")
    hadoop = log.newDeltaHadoopConf()
    if not file.getFileSystem(hadoop).exists(file):
        return []
    return [json.loads(line) for line in log.store().read(file, hadoop).mkString("\n").split("\n")]


def commits_back(spark: SparkSession, path: str) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The versions of a table with their actions, newest first, as far as its log has them."""
    if has_files(path):
        for commit in commits_newest_first(path):
            with contextlib.suppress(ValueError):  # damaged, but a checkpoint covers it
                yield commit.version, list(commit.actions())
        return
    version = int(snapshot_of(spark, path).version())
    while version >= 0 and (actions := read_commit(spark, path, version)):
        yield version, actions
        version -= 1


def commit_time_ms(spark: SparkSession, path: str, version: int) -> int | None:
    """When the commit's file was written; None if Delta has removed it."""
    log, file = delta_log(spark, path), log_names(spark).path(f"{path}/_delta_log/{version:020}.json")
    files = file.getFileSystem(log.newDeltaHadoopConf())
    return int(files.getFileStatus(file).getModificationTime()) if files.exists(file) else None


def committed_versions(spark: SparkSession, snapshot: Any) -> dict[str, int]:
    """Application id → its newest committed version (Delta's `txn` actions)."""
    transactions = _from_checksum(spark, snapshot, "setTransactions")
    if transactions is not None:
        return {entry["appId"]: entry["version"] for entry in transactions}
    versions: dict[str, int] = _to_python(spark, snapshot.transactions())
    return versions


def set_transaction(spark: SparkSession, app_id: str, version: int) -> Any:
    """Delta's action that stores the (writer, version) pair."""
    names, now_ms = log_names(spark), time.time_ns() // 1_000_000
    return names.set_transaction(app_id, version, names.option.apply(now_ms))


def known_rows(spark: SparkSession, snapshot: Any) -> int | None:
    """The number of rows, without those in deletion vectors; None if the checksum does not list all files with counts."""
    files = _from_checksum(spark, snapshot, "allFiles")
    if files is None:
        return None
    rows = 0
    for file in files:
        records = json.loads(file.get("stats") or "{}").get("numRecords")
        if records is None:
            return None
        rows += records - ((file.get("deletionVector") or {}).get("cardinality") or 0)
    return rows


def _from_checksum(spark: SparkSession, snapshot: Any, part: str) -> Any:
    """This part of the snapshot's checksum; None if there is no checksum or it lacks the part."""
    checksum = snapshot.checksumOpt()
    return None if checksum.isEmpty() else _to_python(spark, getattr(checksum.get(), part)())


def _to_python(spark: SparkSession, value: Any) -> Any:
    return json.loads(log_names(spark).json.mapper().writeValueAsString(value))
