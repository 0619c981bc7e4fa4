"""Tables that wait before a statement (`ddl_policy: hold`): what was approved, and what comes again when a table goes on.

Which tables wait is written with each cut (`consistent_cuts.held`); what may go on stands in `ddl_approvals`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.lake.delta import Commit, append_once, table_state
from cdc_pipeline.lake.tables.ddl_history import HELD
from cdc_pipeline.mirrors.changes.copies import POSITION
from cdc_pipeline.mirrors.changes.segments import with_segments
from cdc_pipeline.mirrors.model.ddl_events import ddl_event, in_order
from cdc_pipeline.mysql.model.schema_changes import DropDatabase
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.changes.window import Window
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable, StatementPosition
    from cdc_pipeline.mysql.model.table import TableName

APPROVALS = "ddl_approvals"
_APPROVALS_SCHEMA = "topic STRING, `partition` INT, `offset` BIGINT, sql STRING, run_id STRING, approved_at TIMESTAMP"


def approved_statements(spark: SparkSession, paths: LakePaths) -> frozenset[StatementPosition]:
    """The positions of all statements that were approved."""
    path = paths.table(APPROVALS)
    if table_state(spark, path) is None:
        return frozenset()
    rows = spark.read.format("delta").load(path).select("topic", "partition", "offset").collect()
    return frozenset((row["topic"], row["partition"], row["offset"]) for row in rows)


def approve(spark: SparkSession, paths: LakePaths, held: Iterable[HeldTable], run_id: str) -> None:
    """Writes down that the statements which these tables wait for may go on. The next cut lets them."""
    causes = {table.cause: table.sql for table in held}
    now = datetime.now(timezone.utc)
    rows = [(*cause, sql, run_id, now) for cause, sql in sorted(causes.items())]
    commit = Commit(f"cdc:{paths.pipeline}:ddl_approvals:{run_id}", 1, {"run_id": run_id})
    append_once(small_frame(spark, rows, _APPROVALS_SCHEMA), paths.table(APPROVALS), commit)


def returning_events(
    history: DataFrame,
    released: Mapping[TableName, HeldTable],
    window: Window,
    mirrored: Callable[[DdlEvent], DdlEvent],
) -> list[DdlEvent]:
    """The statements of earlier cuts that waited with these tables, in stream order and as upstream has them.

    A cut that was begun may have closed them already: then they have its number. `mirrored` tells what an event does to
    mirrors, whose names the tables have.
    """
    if not released:
        return []
    oldest = min(held.commit_ts for held in released.values())
    waiting = (F.col("status") == HELD) | (F.col("cut_id") == window.cut_id)
    past = history.where((F.col("commit_ts") >= oldest) & waiting).where(F.col("batch_id") <= window.last_batch)
    inside = {(row["topic"], row["partition"], row["offset"]) for row in window.of(history).collect()}
    events = [replace(ddl_event(row), returning=True) for row in past.collect()]
    return in_order(event for event in events if event.position not in inside and _concerns(mirrored(event), released))


def _concerns(event: DdlEvent, released: Collection[TableName]) -> bool:
    whole = [change for change in event.changes if isinstance(change, DropDatabase)]
    if any(change.has(name) for change in whole for name in released):
        return True
    return any(name in released for name in event.names())


def with_returned(
    delivered: DataFrame,
    log: DataFrame,
    cuts: DataFrame | None,
    released: Mapping[TableName, HeldTable],
    events: Iterable[DdlEvent],
    window: Window,
) -> DataFrame:
    """`delivered` with the row changes of these tables that earlier cuts have left out.

    Those lie after the statement that the table stopped at. What came late was told as such when it came.
    """
    if not released or cuts is None:
        return delivered
    bounds = small_frame(
        delivered.sparkSession,
        [(name.database, name.table, held.commit_ts) for name, held in released.items()],
        "`database` STRING, `table` STRING, stopped_at BIGINT",
    )
    names = ["database", "table"]
    after_stop = F.col("commit_ts") >= F.col("stopped_at")
    past = log.join(F.broadcast(bounds), names).where(after_stop).where(F.col("batch_id") <= window.after_batch)
    if window.after_tso is not None:
        past = past.where(F.col("commit_ts") <= window.after_tso)
        passed = cuts.select(F.col("resolved_tso").alias("passed_tso"), F.col("last_batch").alias("passed_batch"))
        late = (F.col("passed_tso") >= F.col("commit_ts")) & (F.col("passed_batch") < F.col("batch_id"))
        past = past.join(F.broadcast(passed), late, "left_anti")
    returned = with_segments(past.select(*log.columns), events).where("segment > 0").drop("segment")
    returned = returned.withColumns({"fresh": F.lit(True), "taken": F.lit(False)})
    # without watermarks changes of earlier cuts come along: of these tables each comes once
    again = delivered.join(F.broadcast(bounds), names).where(F.col("taken") & after_stop)
    others = delivered.join(again.select(*POSITION), list(POSITION), "left_anti")
    return others.unionByName(returned)


def held_rows(changes: DataFrame, held_from: Mapping[TableName, int]) -> dict[TableName, int]:
    """How many of the changes not counted before stay out, by table: those from the given segment on. `changes` have their
    `segment`."""
    if not held_from:
        return {}
    bounds = small_frame(
        changes.sparkSession,
        [(name.database, name.table, first) for name, first in held_from.items()],
        "`database` STRING, `table` STRING, first INT",
    )
    found = (
        changes.where("NOT taken")
        .join(F.broadcast(bounds), ["database", "table"])
        .where(F.col("segment") >= F.col("first"))
        .groupBy("database", "table")
        .count()
        .collect()
    )
    by_name = {(row["database"], row["table"]): row["count"] for row in found}
    return {name: by_name.get((name.database, name.table), 0) for name in held_from}


def released_tables(held: Iterable[HeldTable], approved: Collection[StatementPosition]) -> dict[TableName, HeldTable]:
    """The tables that wait for what was approved."""
    return {table.name: table for table in held if table.cause in approved}
