"""Delta's own log of a table, as its snapshot knows it.

Delta writes a checksum file beside each commit: size, writers and (up to some dozen) files of the table. What it says costs
nothing; the snapshot's own methods of the same meaning are a query over the whole log. Each call of a JVM object costs about
a millisecond, so that what has many parts comes as one JSON text.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdc_pipeline.lake.log_files import require_whole_log
from cdc_pipeline.spark.jvm import jvm, jvm_session

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession


_LOOKED_AT: set[str] = set()
"""Tables of which this process knows that their logs are whole: what is written from now on goes through it."""


@dataclass(frozen=True)
class LogNames:
    """Classes of the JVM. py4j asks the JVM for each part of a name anew, which takes a millisecond."""

    session: Any
    delta_log: Any
    option: Any
    converters: Any
    path: Any
    array_list: Any
    hash_map: Any
    immutable_map: Any
    set_transaction: Any
    set_properties: Any
    mapper: Any


@functools.lru_cache(maxsize=1)
def _names(java: Any) -> LogNames:
    delta = java.org.apache.spark.sql.delta
    return LogNames(
        session=java.org.apache.spark.sql.classic.SparkSession,
        delta_log=delta.DeltaLog,
        option=java.scala.Option,
        converters=java.scala.jdk.javaapi.CollectionConverters,
        path=java.org.apache.hadoop.fs.Path,
        array_list=java.java.util.ArrayList,
        hash_map=java.java.util.HashMap,
        immutable_map=getattr(getattr(java.scala.collection.immutable, "Map$"), "MODULE$").__getattr__("from"),
        set_transaction=delta.actions.SetTransaction,
        set_properties=getattr(delta, "DeltaOperations$SetTableProperties"),
        mapper=delta.util.JsonUtils.mapper(),
    )


def log_names(spark: SparkSession) -> LogNames:
    return _names(jvm(spark))


def require_whole_logs(paths: Iterable[str]) -> None:
    """Raises LakeError where files of one of these tables' logs are damaged. Each is looked at once in a process, before
    its first use: Delta keeps what it has read, and may not notice what is missing in what it has not."""
    for path in paths:
        if path not in _LOOKED_AT:
            require_whole_log(path)
            _LOOKED_AT.add(path)


def delta_log(spark: SparkSession, path: str) -> Any:
    """Delta's log of the table. Raises LakeError where its files are damaged."""
    require_whole_logs([path])
    names = log_names(spark)
    # where a table has no checksum of its state, as a clone has none, Delta computes it with the session of the thread
    names.session.setActiveSession(jvm_session(spark))
    return names.delta_log.forTable(jvm_session(spark), path)


def snapshot_of(spark: SparkSession, path: str) -> Any:
    """The newest snapshot of the table at `path`; its version is -1 where none is."""
    none = log_names(spark).option.empty()
    return delta_log(spark, path).update(False, none, none)


def snapshot_at(spark: SparkSession, path: str, version: int) -> Any:
    """The table's snapshot as of that version."""
    none = log_names(spark).option.empty()
    return delta_log(spark, path).getSnapshotAt(version, none, none, False)


def same_files(one: Any, other: Any) -> bool:
    """Whether two snapshots of a table have as many files, of the same size, and the same columns."""
    return bool(
        one.numOfFiles() == other.numOfFiles()
        and one.sizeInBytes() == other.sizeInBytes()
        and one.metadata().schemaString() == other.metadata().schemaString()
    )


def newest_operation(spark: SparkSession, path: str) -> str | None:
    """What the newest commit of the table did, by Delta's own name for it; None where the commit does not say it."""
    operation: str | None = _newest_commit(spark, path).get("operation")
    return operation


def newest_note(spark: SparkSession, path: str) -> dict[str, Any]:
    """The note of the table's newest commit (`delta.Commit`); empty where it has none."""
    note: dict[str, Any] = json.loads(_newest_commit(spark, path).get("userMetadata") or "{}")
    return note


def _newest_commit(spark: SparkSession, path: str) -> dict[str, Any]:
    log = delta_log(spark, path)
    file = log_names(spark).path(f"{path}/_delta_log/{snapshot_of(spark, path).version():020}.json")
    for line in log_names(spark).converters.asJava(log.store().read(file, log.newDeltaHadoopConf())):
        if (told := json.loads(line).get("commitInfo")) is not None:
            found: dict[str, Any] = told
            return found
    return {}


def writers(spark: SparkSession, snapshot: Any) -> dict[str, int]:
    """The newest version of each writer (`txn`)."""
    known = _told(spark, snapshot, "setTransactions")
    if known is not None:
        return {entry["appId"]: entry["version"] for entry in known}
    found: dict[str, int] = _plain(spark, snapshot.transactions())
    return found


def known_rows(spark: SparkSession, snapshot: Any) -> int | None:
    """How many rows the files have together that are not marked as deleted; None where the checksum does not say so."""
    files = _told(spark, snapshot, "allFiles")
    if files is None:
        return None
    rows = 0
    for file in files:
        records = json.loads(file.get("stats") or "{}").get("numRecords")
        if records is None:
            return None
        rows += records - ((file.get("deletionVector") or {}).get("cardinality") or 0)
    return rows


def size_in_bytes(snapshot: Any) -> int:
    """How large the files are together."""
    checksum = snapshot.checksumOpt()
    return int(snapshot.sizeInBytes() if checksum.isEmpty() else checksum.get().tableSizeBytes())


def _told(spark: SparkSession, snapshot: Any, part: str) -> Any:
    """What the checksum of the snapshot says of this; None where there is no checksum, or it does not say so."""
    checksum = snapshot.checksumOpt()
    return None if checksum.isEmpty() else _plain(spark, getattr(checksum.get(), part)())


def _plain(spark: SparkSession, value: Any) -> Any:
    return json.loads(log_names(spark).mapper.writeValueAsString(value))
