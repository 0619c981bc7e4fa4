"""Keeps the files of a table few: joins small data files, and removes old commits from the log.

Delta does neither often enough for a table that gets a commit every few seconds. It removes commits after days, and every
query lists the files of the log.
"""

from __future__ import annotations

import time
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.delta_log import commit_time_ms, delta_log, log_names, option_of_long, snapshot_of
from cdc_pipeline.spark.jvm import jvm

_SMALL_BYTES = 16 * 2**20
_KEPT_BY_USER = ("delta.logRetentionDuration", "delta.enableExpiredLogCleanup")
"""Table properties with which users decide how long a log keeps its commits."""


def compact_small_files(spark: SparkSession, path: str) -> tuple[int, int]:
    """Joins the table's files below 16 MB into files up to twice that size. Returns how many were removed and added.

    A call takes about a second, because it leaves larger files and deleted rows in them to OPTIMIZE (`<name>_maintain`).
    """
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.optimize.minFileSize", str(_SMALL_BYTES))
    session.conf.set("spark.databricks.delta.optimize.maxFileSize", str(2 * _SMALL_BYTES))
    session.conf.set("spark.databricks.delta.optimize.maxDeletedRowsRatio", "1.0")
    return compact_files(session, path)


def compact_files(session: SparkSession, path: str) -> tuple[int, int]:
    """Runs OPTIMIZE with the session's settings. Returns the number of files removed and added."""
    metrics = DeltaTable.forPath(session, path).optimize().executeCompaction()
    removed, added = metrics.select("metrics.numFilesRemoved", "metrics.numFilesAdded").collect()[0]
    return removed, added


def shorten_log(spark: SparkSession, path: str, kept_versions: int) -> None:
    """Removes the commits of a table before its newest `kept_versions`, which then cannot be read any more.

    Delta's own cleanup does it, so the first remaining version has a checkpoint. Leaves a table alone whose properties say
    how long its log is kept.
    """
    state = table_state(spark, path)
    if state is None or state.version <= kept_versions or any(name in state.properties for name in _KEPT_BY_USER):
        return
    oldest_ms = commit_time_ms(spark, path, state.version - kept_versions)
    if oldest_ms is None:  # removed already
        return
    java: Any = jvm(spark)
    none = log_names(spark).option.empty()
    age_ms = max(int(time.time() * 1000) - oldest_ms, 0)
    retention = option_of_long(spark, age_ms)
    to_the_minute = java.org.apache.spark.sql.delta.TruncationGranularity.MINUTE()
    delta_log(spark, path).cleanUpExpiredLogs(snapshot_of(spark, path), none, retention, to_the_minute)
