"""Writes rows into Delta tables, each time with the (writer, version) pair of `delta`.

An append opens Delta's transaction through py4j, as `df.write` does inside, and gives it the query of the frame. `df.write`
would analyse and plan that query again, which for a small batch is most of the cost. It remains for what the transaction
does not do: it creates tables, adds columns, and replaces rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.delta_log import committed_versions, delta_log, log_names, set_transaction, snapshot_of
from cdc_pipeline.lake.handles import forget_version


def append_once(frame: DataFrame, path: str, commit: Commit, **options: str) -> None:
    """Appends `frame`, unless the table already contains the commit or a later one of the same writer.

    `options`: of `df.write`, if the table does not exist or its columns are not those of the frame.
    """
    if not append_if(frame, path, commit):
        _writer(frame, commit, options).mode("append").save(path)


def append_if(frame: DataFrame, path: str, commit: Commit, accept: Callable[[], bool] = lambda: True) -> bool:
    """`append_once`, if `accept` returns true after the rows are written and before they are committed.

    Returns false, without a commit, if it does not, if the table does not exist or has other columns than the frame, or if
    this Delta has no such transaction. Files that are not committed remain until VACUUM.
    """
    snapshot = snapshot_of(frame.sparkSession, path)
    if snapshot.version() < 0:
        return False
    schema = StructType.fromJson(json.loads(snapshot.schema().json()))
    return _columns(schema) == _columns(frame.schema) and _append(frame, path, snapshot, commit, accept)


def overwrite_once(frame: DataFrame, path: str, commit: Commit, **options: str) -> None:
    """Replaces rows and schema by those of `frame` in one commit, unless the table already contains it. `options`: of
    `df.write`."""
    _writer(frame, commit, {"overwriteSchema": "true", **options}).mode("overwrite").save(path)
    forget_version(path)  # of a control table, which a rebuild replaces


def replace_once(frame: DataFrame, path: str, commit: Commit, predicate: str | None) -> None:
    """Replaces the rows that match the SQL `predicate` (None: all rows) by `frame` in one commit, unless the table already
    contains it. The schema stays."""
    options = {} if predicate is None else {"replaceWhere": predicate}
    _writer(frame, commit, options).mode("overwrite").save(path)


def _writer(frame: DataFrame, commit: Commit, options: dict[str, str]) -> Any:
    return (
        frame.write.format("delta")
        .option("txnAppId", commit.app_id)
        .option("txnVersion", str(commit.version))
        .option("userMetadata", commit.note_json)
        .options(**options)
    )


def _columns(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}


def _append(frame: DataFrame, path: str, snapshot: Any, commit: Commit, accept: Callable[[], bool]) -> bool:
    spark = frame.sparkSession
    names, none = log_names(spark), log_names(spark).option.empty()
    if committed_versions(spark, snapshot).get(commit.app_id, -1) >= commit.version:
        return True
    try:
        no_columns = names.option.apply(names.converters.asScala(names.array_list()).toSeq())
        operation = names.write(names.append, no_columns, none, names.option.apply(commit.note_json), *[none] * 5)
        transaction = delta_log(spark, path).startTransaction(none, names.option.apply(snapshot))
        # A concurrent commit of the same writer is a conflict. `txnVersion` would compute the state of the table in a job
        transaction.readTxn().append(commit.app_id)
    except Py4JJavaError:
        raise
    except (Py4JError, TypeError):  # a class that does not exist is a package to py4j
        return False
    actions = names.array_list(names.converters.asJava(transaction.writeFiles(frame._jdf)))
    if not accept():
        return False
    actions.add(set_transaction(spark, commit.app_id, commit.version))
    transaction.commit(names.converters.asScala(actions).toSeq(), operation)
    return True
