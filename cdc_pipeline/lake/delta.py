"""Delta commits that carry their own progress, so that repeating one changes nothing (DESIGN §2, promise 2).

Each writer of a table has an application id and a version that only grows; Delta stores the pair (`txn`) in the same
commit as the data, and a commit whose version is not above the stored one is skipped. Appends take the pair as writer
options; MERGE, UPDATE and DELETE take it from the session's settings only, so each gets a session of its own.

Metadata commits (columns added, renamed, dropped, widened, reordered, and table properties) have no public call that
takes the pair. `commit_metadata` therefore opens Delta's own transaction through py4j, exactly as Delta's ALTER TABLE
does, and adds the pair to it: one atomic commit, whatever the number of changes. See docs/adr/0002.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delta.exceptions import DeltaConcurrentModificationException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from cdc_pipeline.lake.delta_log import delta_log, known_rows, log_names, size_in_bytes, snapshot_of, writers
from cdc_pipeline.spark.few_rows import interpret
from cdc_pipeline.spark.jvm import jvm_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_CONFLICT = re.compile(
    r"(io\.delta\.exceptions|org\.apache\.spark\.sql\.delta)\.(\w*Concurrent|Metadata|Protocol)\w*Exception"
)


_NOTE = "spark.databricks.delta.commitInfo.userMetadata"
_RECORDS = "CAST(get_json_object(add.stats, '$.numRecords') AS BIGINT)"


@dataclass(frozen=True)
class Commit:
    """The identity of one commit: who writes (`app_id`), how far (`version`, only grows), and a note for auditors."""

    app_id: str
    version: int
    note: dict[str, Any]

    @property
    def note_json(self) -> str:
        return json.dumps(self.note, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class TableState:
    """What a Delta table's newest snapshot says of itself. Read from the log's metadata alone, without a Spark job."""

    version: int
    schema: StructType
    properties: dict[str, str]


def progress(spark: SparkSession, path: str, app_id: str) -> int | None:
    """The newest version that the writer `app_id` has committed to the table; None where it or the table is not there."""
    return writers(spark, snapshot_of(spark, path)).get(app_id)


def is_in(spark: SparkSession, path: str, commit: Commit) -> bool:
    """Whether the commit, or a later one of the same writer, is in the table."""
    return (progress(spark, path, commit.app_id) or 0) >= commit.version


def table_state(spark: SparkSession, path: str) -> TableState | None:
    """The newest snapshot of the table at `path`, or None where no table is."""
    snapshot = snapshot_of(spark, path)
    version: int = snapshot.version()
    if version < 0:
        return None
    metadata = json.loads(snapshot.metadata().json())["metaData"]
    return TableState(version, StructType.fromJson(json.loads(metadata["schemaString"])), metadata["configuration"])


def row_count(spark: SparkSession, path: str) -> int:
    """How many rows the newest snapshot of the table has, by what its log says of its files, without reading them; by
    counting where it does not say so of all."""
    snapshot = snapshot_of(spark, path)
    known = known_rows(spark, snapshot)
    if known is not None:
        return known
    state = DataFrame(snapshot.stateDF(), spark).where("add IS NOT NULL")
    row = state.selectExpr(
        f"coalesce(sum({_RECORDS} - coalesce(add.deletionVector.cardinality, 0)), 0) AS told",
        f"count_if({_RECORDS} IS NULL) AS silent",
    ).first()
    assert row is not None
    return spark.read.format("delta").load(path).count() if row["silent"] else int(row["told"])


def stored_bytes(spark: SparkSession, path: str) -> int:
    """How large the files of the table's newest snapshot are together. Delta keeps it with the snapshot."""
    return size_in_bytes(snapshot_of(spark, path))


def forget_cached_log(spark: SparkSession, path: str) -> None:
    """Drops the driver's cached log of a folder that was moved by us, not by Delta."""
    names = log_names(spark)
    names.delta_log.invalidateCache(jvm_session(spark), names.path(path))


def append_once(frame: DataFrame, path: str, commit: Commit, **options: str) -> None:
    """Appends `frame`, unless this commit or a later one of the same writer is already in the table."""
    _writer(frame, commit, options).mode("append").save(path)


def overwrite_once(frame: DataFrame, path: str, commit: Commit) -> None:
    """Replaces rows and columns by those of `frame` in one commit, unless it is already in."""
    _writer(frame, commit, {"overwriteSchema": "true"}).mode("overwrite").save(path)


def replace_once(frame: DataFrame, path: str, commit: Commit, gone: str | None) -> None:
    """Takes the rows of the table away for which the SQL `gone` is true (all, for None) and appends `frame`, in one commit,
    unless it is already in. Columns stay as they are."""
    options = {} if gone is None else {"replaceWhere": gone}
    _writer(frame, commit, options).mode("overwrite").save(path)


def _writer(frame: DataFrame, commit: Commit, options: dict[str, str]) -> Any:
    return (
        frame.write.format("delta")
        .option("txnAppId", commit.app_id)
        .option("txnVersion", str(commit.version))
        .option("userMetadata", commit.note_json)
        .options(**options)
    )


def is_conflict(error: BaseException) -> bool:
    """Whether another writer's commit came first: Delta's exceptions of concurrent writers, as PySpark or py4j give them."""
    if isinstance(error, DeltaConcurrentModificationException):
        return True
    java = getattr(error, "java_exception", None)
    return java is not None and bool(_CONFLICT.match(java.getClass().getName()))


def session_for(spark: SparkSession, commit: Commit, *, whole_files: bool = False, few: bool = False) -> SparkSession:
    """A session of the same application whose MERGE, UPDATE and DELETE are this commit. Use it for one statement.

    `whole_files`: a MERGE writes the files anew in which rows change, where otherwise it marks these rows as deleted. `few`:
    the table and what comes into it have few rows.
    """
    session = spark.newSession()
    if few:
        interpret(session)
    session.conf.set("spark.databricks.delta.merge.deletionVectors.persistent", str(not whole_files).lower())
    session.conf.set("spark.databricks.delta.write.txnAppId", commit.app_id)
    session.conf.set("spark.databricks.delta.write.txnVersion", str(commit.version))
    session.conf.set(_NOTE, commit.note_json)
    return session


def commit_metadata(
    spark: SparkSession, path: str, commit: Commit, *, schema: StructType | None = None, properties: dict[str, str]
) -> bool:
    """Sets columns and properties in one commit that carries `commit`; False where that was already in.

    `schema` is the whole new schema in its new order. Columns that stay keep the field metadata they have in the
    table (column mapping finds them by it, also under a new name); new columns have none and are NULL in old rows.
    """
    none = log_names(spark).option.empty()
    transaction = delta_log(spark, path).startTransaction(none, none)
    if writers(spark, transaction.snapshot()).get(commit.app_id, -1) >= commit.version:
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
    """Makes an empty table at `path`, where none must be, in one commit that carries `commit`.

    The public builder would do, but it puts the path into SQL text, which a name with a back-tick breaks.
    """
    delta_log(spark, path).createLogDirectoriesIfNotExists()
    commit_metadata(spark, path, commit, schema=schema, properties=properties)


def set_writers(spark: SparkSession, path: str, versions: dict[str, int], note: str, told: dict[str, str]) -> None:
    """Makes these the versions that the table's writers have committed, in one commit that has the note. Rows stay. What is
    told stands among the commit's parameters."""
    none = log_names(spark).option.empty()
    transaction = delta_log(spark, path).startTransaction(none, none)
    spark.conf.set(_NOTE, note)
    try:
        _commit_writers(spark, transaction, versions, {"cdc.last_note": note, **told})
    finally:
        spark.conf.unset(_NOTE)


def _commit(spark: SparkSession, transaction: Any, commit: Commit) -> None:
    _commit_writers(spark, transaction, {commit.app_id: commit.version}, {"cdc.last_note": commit.note_json})


def _commit_writers(spark: SparkSession, transaction: Any, versions: dict[str, int], told: dict[str, str]) -> None:
    names = log_names(spark)
    actions, parameters = names.array_list(), names.hash_map()
    now_ms = time.time_ns() // 1_000_000
    for app_id, version in versions.items():
        actions.add(names.set_transaction(app_id, version, names.option.apply(now_ms)))
    for name, value in told.items():
        parameters.put(name, value)
    # Of this operation Delta follows sizes, writers and files from commit to commit in the table's checksum; after a
    # "manual update" it asks the whole log for them, twice.
    operation = names.set_properties(names.immutable_map(names.converters.asScala(parameters)))
    transaction.commit(names.converters.asScala(actions).toSeq(), operation)
