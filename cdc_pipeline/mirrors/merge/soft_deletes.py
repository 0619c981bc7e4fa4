"""Mirrors with `soft_delete`, which keep the rows that upstream deletes.

A deleted row has `_deleted` true, its last values, and the metadata of the DELETE. A mirror has one row per key, deleted or
not. The rows with `_deleted` false are those of the upstream table.
"""

from __future__ import annotations

import functools
import operator

from delta.tables import DeltaTable
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from cdc_pipeline.lake.delta import Commit, commit_session, is_committed
from cdc_pipeline.lake.writes import replace_once
from cdc_pipeline.mirrors.model.state import DELETED, MirrorState
from cdc_pipeline.mysql.model.quoted_names import quoted, unused_name
from cdc_pipeline.spark.small_frames import totals

LIVE = f"NOT {DELETED}"
"""SQL condition: the row exists upstream. `_deleted` is never NULL."""


def live_rows(mirror: DataFrame, *, keeps_deleted: bool) -> DataFrame:
    """The rows of a mirror that exist upstream, with all columns of the mirror."""
    return mirror.where(LIVE) if keeps_deleted else mirror


def delete_or_mark_rows(
    spark: SparkSession, path: str, rows: str | None, commit: Commit, *, keeps_deleted: bool
) -> None:
    """Deletes the rows that match the SQL condition `rows` (None: all) in one commit; with `keeps_deleted` marks them.

    Marked rows keep their metadata, because no message deleted them.
    """
    table = DeltaTable.forPath(commit_session(spark, commit), path)
    if keeps_deleted:
        condition = LIVE if rows is None else f"({rows}) AND {LIVE}"
        table.update(F.expr(condition), {DELETED: F.lit(True)})
    else:
        table.delete(rows)


def purge_deleted_rows(spark: SparkSession, path: str, commit: Commit) -> None:
    """Removes the rows that upstream deleted, in one commit that is skipped if it exists."""
    if not is_committed(spark, path, commit):
        DeltaTable.forPath(commit_session(spark, commit), path).delete(F.col(DELETED))


def purge_surplus_rows(spark: SparkSession, path: str, state: MirrorState, commit: Commit) -> None:
    """Removes surplus deleted rows of each `soft_delete_key`, in one commit. Skipped if it exists or nothing is surplus.

    Keeps all live rows, or else the newest deleted one. Rows with a NULL in the key stay: no later row can have that key.
    """
    if is_committed(spark, path, commit):
        return
    mirror = spark.read.format("delta").load(path)
    key = [F.col(quoted(name)) for name in state.soft_delete_key or ()]
    has_key = functools.reduce(operator.and_, (cell.isNotNull() for cell in key))
    newest = [F.col(name).desc() for name in state.metadata]
    # makes the order of otherwise equal rows deterministic
    content = F.xxhash64(*(F.col(quoted(name)) for name in mirror.columns))
    number = F.row_number().over(Window.partitionBy(*key).orderBy(F.expr(LIVE).desc(), *newest, content))
    own = unused_name("number", mirror.columns)
    numbered = mirror.withColumn(own, number)
    is_surplus = (F.col(own) > 1) & has_key & F.col(DELETED)
    if not numbered.where(is_surplus).isEmpty():
        replace_once(numbered.where(~is_surplus).select(*(quoted(name) for name in mirror.columns)), path, commit, None)


def merge_counts(mirror: DataFrame, rows: DataFrame, same_key: str) -> tuple[int, int, int]:
    """The number of inserted, updated and deleted rows of a merge, where marking a live row counts as a delete.

    `same_key` is the condition of the merge, over the aliases `s` and `t`.
    """
    was_live = f"coalesce(NOT t.{DELETED}, false)"
    joined = rows.alias("s").join(mirror.alias("t"), F.expr(same_key), "left")
    inserted, updated, deleted = totals(
        joined,
        F.count_if(F.expr(f"NOT s.deleted AND NOT {was_live}")),
        F.count_if(F.expr(f"NOT s.deleted AND {was_live}")),
        F.count_if(F.expr(f"s.deleted AND {was_live}")),
    )
    return inserted, updated, deleted


def deleted_cell(*, keeps_deleted: bool) -> SparkColumn:
    """`_deleted` for rows that are copied into a `soft_delete` mirror. `keeps_deleted`: the rows have the column."""
    return (F.col(DELETED) if keeps_deleted else F.lit(False)).alias(DELETED)
