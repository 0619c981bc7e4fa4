"""Idempotent Delta commits: each stores its progress in the same commit as its data, so repeating it changes nothing.

Each writer of a table has an application id and an increasing version. Delta stores the pair (`txn`) with the data and
skips a commit whose version is not above the stored one. `writes` gives it the pair directly; MERGE, UPDATE and DELETE take
it from the session's settings only, so each runs in its own session.

No public API takes the pair for metadata commits (added, renamed, dropped, widened or reordered columns, table
properties). `commit_metadata` therefore opens Delta's transaction through py4j, as Delta's ALTER TABLE does, and adds the
pair to it: one atomic commit for any number of changes. See docs/adr/0002.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from dataclasses import dataclass
from typing import Any

import delta.exceptions
from deltalake import CommitProperties, DeltaTable, Transaction
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from cdc_pipeline.lake.delta_log import (
    commits_back,
    committed_versions,
    delta_log,
    has_snapshot,
    known_rows,
    log_names,
    set_transaction,
    snapshot_at,
    snapshot_of,
)
from cdc_pipeline.lake.file_statistics import open_local_table, spark_schema
from cdc_pipeline.lake.handles import transaction_version
from cdc_pipeline.lake.log_files import has_checksum
from cdc_pipeline.lake.paths import has_files
from cdc_pipeline.spark.jvm import has_started, jvm_session
from cdc_pipeline.spark.small_frames import set_for_small_queries

_CONFLICT = re.compile(
    r"(io\.delta\.exceptions|org\.apache\.spark\.sql\.delta)\.(\w*Concurrent|Metadata|Protocol)\w*Exception"
)


# the classes have no common base
_CONFLICTS = tuple(
    found
    for name, found in vars(delta.exceptions).items()
    if name.endswith("Exception") and ("Concurrent" in name or "Changed" in name)
)
_NOTE = "spark.databricks.delta.commitInfo.userMetadata"
_NEWEST_COMMITS = 5


@dataclass(frozen=True)
class Commit:
    """The identity of one commit."""

    app_id: str
    """Delta's application id of the writer."""
    version: int
    """The writer's progress; increases with each of its commits."""
    note: dict[str, Any]
    """Stored as JSON in the commit's `userMetadata`, for auditors."""

    @property
    def note_json(self) -> str:
        return json.dumps(self.note, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class TableState:
    """Metadata of a snapshot of a Delta table. Reading it needs no Spark job."""

    version: int
    schema: StructType
    properties: dict[str, str]


def committed_version(spark: SparkSession, path: str, app_id: str) -> int | None:
    """The newest version that the writer `app_id` has committed to the table; None if it has none or there is no table."""
    if not has_started(spark) and (opened := open_local_table(path)) is not None:
        return transaction_version(opened, app_id)
    return committed_versions(spark, snapshot_of(spark, path)).get(app_id)


def is_committed(spark: SparkSession, path: str, commit: Commit) -> bool:
    """Whether the table contains the commit or a later one of the same writer."""
    return (committed_version(spark, path, commit.app_id) or 0) >= commit.version


def table_state(spark: SparkSession, path: str, at: int | None = None) -> TableState | None:
    """The state of the table at `path`, of its version `at` or of the newest; None if there is no table."""
    # without a checksum Spark reads the log in a job
    is_costly = not has_started(spark) or (has_files(path) and not has_snapshot(path) and not has_checksum(path))
    if at is None and is_costly and (opened := open_local_table(path)) is not None:
        return state_of(opened)
    snapshot = snapshot_of(spark, path) if at is None else snapshot_at(spark, path, at)
    version: int = snapshot.version()
    if version < 0:
        return None
    metadata = json.loads(snapshot.metadata().json())["metaData"]
    return TableState(version, StructType.fromJson(json.loads(metadata["schemaString"])), metadata["configuration"])


def state_of(table: DeltaTable) -> TableState:
    """The state of a table that delta-rs has opened."""
    properties = {name: value for name, value in table.metadata().configuration.items() if value is not None}
    return TableState(table.version(), spark_schema(table), properties)


def commit_properties(commit: Commit, *, most_retries: int | None = None) -> CommitProperties:
    """The pair and the note of the commit, for delta-rs, which does not skip a commit whose pair it has."""
    transaction = Transaction(commit.app_id, commit.version, time.time_ns() // 1_000_000)
    note = {"userMetadata": commit.note_json}
    return CommitProperties(custom_metadata=note, max_commit_retries=most_retries, app_transactions=[transaction])


def row_count(spark: SparkSession, path: str) -> int:
    """The number of rows of the table, from the statistics in its log. Counts rows only if a file has no statistics."""
    known = known_rows(spark, snapshot_of(spark, path))
    # Delta, too, answers it from the statistics
    return spark.read.format("delta").load(path).count() if known is None else known


def stored_bytes(spark: SparkSession, path: str) -> int:
    """The total size of the files of the table's newest snapshot."""
    snapshot = snapshot_of(spark, path)
    checksum = snapshot.checksumOpt()
    return int(snapshot.sizeInBytes() if checksum.isEmpty() else checksum.get().tableSizeBytes())


def forget_cached_log(spark: SparkSession, path: str) -> None:
    """Drops the driver's cached log of a path. Needed after moving a table's folder, which Delta does not notice."""
    names = log_names(spark)
    names.delta_log.invalidateCache(jvm_session(spark), names.path(path))


def appended_rows(spark: SparkSession, path: str, commit: Commit) -> int:
    """The number of rows that the commit has appended, by the statistics in the table's log. 0 if it has none."""
    return _row_count(_actions_of(spark, path, commit))


def own_rows(spark: SparkSession, path: str, commit: Commit) -> int | None:
    """`appended_rows` of a commit that was just made; None if another run of its writer has written its version instead.

    The versions of the writer increase by one.
    """
    actions = _actions_of(spark, path, commit)
    if not actions and (committed_version(spark, path, commit.app_id) or 0) > commit.version:
        return None
    infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
    is_own = all(info.get("userMetadata") == commit.note_json for info in infos)
    return _row_count(actions) if is_own else None


def _row_count(actions: list[dict[str, Any]]) -> int:
    stats = [json.loads(action["add"].get("stats") or "{}") for action in actions if "add" in action]
    return sum(found.get("numRecords", 0) for found in stats)


def _actions_of(spark: SparkSession, path: str, commit: Commit) -> list[dict[str, Any]]:
    """The actions of the commit, if it is one of the newest; else none."""
    for _, actions in itertools.islice(commits_back(spark, path), _NEWEST_COMMITS):
        if any(
            action["txn"]["appId"] == commit.app_id and action["txn"]["version"] == commit.version
            for action in actions
            if "txn" in action
        ):
            return actions
    return []


def is_conflict(error: BaseException) -> bool:
    """Whether a commit failed because of a concurrent writer's. Recognizes both PySpark's and py4j's exceptions."""
    if isinstance(error, _CONFLICTS):
        return True
    java = getattr(error, "java_exception", None)
    return java is not None and bool(_CONFLICT.match(java.getClass().getName()))


def commit_session(
    spark: SparkSession, commit: Commit, *, whole_files: bool = False, small: bool = False
) -> SparkSession:
    """A new session whose next MERGE, UPDATE or DELETE is this commit. Use it for one statement.

    `whole_files`: MERGE rewrites the files with changed rows, instead of marking these rows in deletion vectors.
    `small`: the table and the source of the statement are small (`small_query`).
    """
    session = spark.newSession()
    if small:
        set_for_small_queries(session)
    session.conf.set("spark.databricks.delta.merge.deletionVectors.persistent", str(not whole_files).lower())
    session.conf.set("spark.databricks.delta.write.txnAppId", commit.app_id)
    session.conf.set("spark.databricks.delta.write.txnVersion", str(commit.version))
    session.conf.set(_NOTE, commit.note_json)
    return session


def commit_metadata(
    spark: SparkSession, path: str, commit: Commit, *, schema: StructType | None = None, properties: dict[str, str]
) -> bool:
    """Sets schema and properties in one commit. Returns False, without writing, if the table already contains it.

    `schema`: all columns in their new order; None leaves the schema. Kept and renamed columns must have the field metadata
    of the table's present schema, by which column mapping finds them. New columns have none and are NULL in old rows.
    """
    none = log_names(spark).option.empty()
    transaction = delta_log(spark, path).startTransaction(none, none)
    if committed_versions(spark, transaction.snapshot()).get(commit.app_id, -1) >= commit.version:
        return False
    old = transaction.metadata()
    settings = old.configuration()
    for name, value in {**properties, "cdc.last_note": commit.note_json}.items():
        settings = settings.updated(name, value)
    transaction.updateMetadata(
        old.copy(
            old.id(),
            old.name(),
            old.description(),
            old.format(),
            old.schemaString() if schema is None else schema.json(),
            old.partitionColumns(),
            settings,
            old.createdTime(),
        ),
        False,
    )
    _commit(spark, transaction, commit)
    return True


def create_table(
    spark: SparkSession, path: str, commit: Commit, *, schema: StructType, properties: dict[str, str]
) -> None:
    """Creates an empty table at `path` in one commit. There must be no table yet.

    Delta's public builder puts the path into SQL text, which fails for a path with a backtick.
    """
    delta_log(spark, path).createLogDirectoriesIfNotExists()
    commit_metadata(spark, path, commit, schema=schema, properties=properties)


def _commit(spark: SparkSession, transaction: Any, commit: Commit) -> None:
    names = log_names(spark)
    actions, parameters = names.array_list(), names.hash_map()
    actions.add(set_transaction(spark, commit.app_id, commit.version))
    parameters.put("cdc.last_note", commit.note_json)
    # For SetTableProperties Delta updates the table's checksum incrementally. For ManualUpdate it would recompute it from
    # the whole log, twice.
    operation = names.set_properties(names.immutable_map(names.converters.asScala(parameters)))
    transaction.commit(names.converters.asScala(actions).toSeq(), operation)
