"""Mirrors that keep what upstream deletes (`soft_delete`): such a row stays, with `_deleted` true, the last values that it
had, and the trace of the DELETE. There is one row per key, deleted or not. What upstream has are the rows with `_deleted`
false.
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING

from delta.tables import DeltaTable
from pyspark.sql import Window
from pyspark.sql import functions as F

from cdc_pipeline.lake.delta import is_in, replace_once, session_for
from cdc_pipeline.mirrors.model.state import DELETED
from cdc_pipeline.mysql.model.quoted_names import quoted, unused

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.lake.delta import Commit
    from cdc_pipeline.mirrors.model.state import MirrorState

LIVE = f"NOT {DELETED}"
"""Whether a row is there upstream. `_deleted` is never NULL."""


def live_rows(mirror: DataFrame, *, keeps_deleted: bool) -> DataFrame:
    """The rows of a mirror that are there upstream, with all of its columns."""
    return mirror.where(LIVE) if keeps_deleted else mirror


def end_rows(spark: SparkSession, path: str, rows: str | None, commit: Commit, *, keeps_deleted: bool) -> None:
    """In one commit: the rows for which the SQL `rows` is true (all, without) go. `keeps_deleted`: such as are there are
    deleted ones from then on. Their trace stays: no message has deleted them."""
    table = DeltaTable.forPath(session_for(spark, commit), path)
    if keeps_deleted:
        condition = LIVE if rows is None else f"({rows}) AND {LIVE}"
        table.update(F.expr(condition), {DELETED: F.lit(True)})
    else:
        table.delete(rows)


def forget_deleted_rows(spark: SparkSession, path: str, commit: Commit) -> None:
    """In one commit: the rows that upstream has deleted go."""
    if not is_in(spark, path, commit):
        DeltaTable.forPath(session_for(spark, commit), path).delete(F.col(DELETED))


def keep_one_per_key(spark: SparkSession, path: str, state: MirrorState, commit: Commit) -> None:
    """In one commit, if any has to go: of rows with equal `soft_key` the one that is there, else the newest. Rows that are
    there all stay, and so do those of which the key is NULL in part: no row can come that has it."""
    if is_in(spark, path, commit):
        return
    mirror = spark.read.format("delta").load(path)
    key = [F.col(quoted(name)) for name in state.soft_key or ()]
    whole = functools.reduce(operator.and_, (cell.isNotNull() for cell in key))
    newest = [F.col(name).desc() for name in state.trace]
    # for those that nothing else tells apart
    content = F.xxhash64(*(F.col(quoted(name)) for name in mirror.columns))
    place = F.row_number().over(Window.partitionBy(*key).orderBy(F.expr(LIVE).desc(), *newest, content))
    own = unused("place", mirror.columns)
    placed = mirror.withColumn(own, place)
    surplus = (F.col(own) > 1) & whole & F.col(DELETED)
    if not placed.where(surplus).isEmpty():
        replace_once(placed.where(~surplus).select(*(quoted(name) for name in mirror.columns)), path, commit, None)


def soft_counts(mirror: DataFrame, rows: DataFrame, same_key: str, not_older: str) -> tuple[int, int, int]:
    """How many rows are there after a merge of `rows` that were not (inserted), how many were and stay (updated), and how
    many were and are no more (deleted). `same_key` and `not_older` are as the merge has them, over `s` and `t`."""
    was = f"coalesce(NOT t.{DELETED}, false)"
    joined = rows.alias("s").join(mirror.alias("t"), F.expr(same_key), "left")
    counted = joined.where(f"t.{DELETED} IS NULL OR ({not_older})").agg(
        F.count_if(F.expr(f"NOT s.deleted AND NOT {was}")),
        F.count_if(F.expr(f"NOT s.deleted AND {was}")),
        F.count_if(F.expr(f"s.deleted AND {was}")),
    )
    row = counted.first()
    assert row is not None
    return row[0], row[1], row[2]


def deleted_cell(*, keeps_deleted: bool) -> SparkColumn:
    """`_deleted` for a mirror that has it, of rows from one that has it or has not."""
    return (F.col(DELETED) if keeps_deleted else F.lit(False)).alias(DELETED)
