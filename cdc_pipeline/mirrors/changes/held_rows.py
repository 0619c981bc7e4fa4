"""Held tables (`ddl_policy: hold`): approved statements, and what a cut applies when a table resumes.

Each cut stores which tables are held (`consistent_cuts.held`). `ddl_approvals` stores the approved statements.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.lake.control_tables import append_rows, read_rows
from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.tables.ddl_history import APPLIED, HELD
from cdc_pipeline.mirrors.changes.segments import with_segments
from cdc_pipeline.mirrors.model.ddl_events import ddl_event, in_upstream_order
from cdc_pipeline.mysql.model.schema_changes import DropDatabase
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import POSITION, Position
from cdc_pipeline.spark.small_frames import small_frame, small_table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pyspark.sql import DataFrame

    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.mirrors.changes.window import Window
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable

APPROVALS = "ddl_approvals"
_APPROVALS_SCHEMA = "topic STRING, `partition` INT, `offset` BIGINT, run_id STRING, approved_at TIMESTAMP"


def approved_statements(lake: Lake) -> frozenset[Position]:
    """The positions of all approved statements."""
    return frozenset(Position(**row) for row in read_rows(lake, APPROVALS, columns=POSITION))


def applied_statements(lake: Lake) -> frozenset[Position]:
    """The positions of all statements that the mirrors have applied. A replay holds none of them, under any policy."""
    return frozenset(
        Position(**row) for row in read_rows(lake, "ddl_history", ("status", "=", APPLIED), columns=POSITION)
    )


def approve(lake: Lake, held: Iterable[HeldTable], run_id: str) -> None:
    """Approves the statements that hold these tables. The next cut applies them."""
    now = datetime.now(timezone.utc)
    rows = [(*statement, run_id, now) for statement in sorted({table.statement for table in held})]
    commit = Commit(f"cdc:{lake.paths.pipeline}:ddl_approvals:{run_id}", 1, {"run_id": run_id})
    append_rows(lake, APPROVALS, small_table(rows, _APPROVALS_SCHEMA), commit)


def resumed_events(
    history: DataFrame,
    released: Mapping[TableName, HeldTable],
    window: Window,
    mirrored: Callable[[DdlEvent], DdlEvent],
) -> list[DdlEvent]:
    """The statements of earlier cuts that were held with these tables, in stream order, with upstream's names.

    An interrupted run of this cut may have closed some already: those have its `cut_id`. `mirrored` maps an event to its
    effect on mirrors; `released` has the names of mirrors.
    """
    if not released:
        return []
    oldest = min(held.commit_ts for held in released.values())
    is_held = (F.col("status") == HELD) | (F.col("cut_id") == window.cut_id)
    past = history.where((F.col("commit_ts") >= oldest) & is_held).where(F.col("batch_id") <= window.last_batch)
    inside = {Position(row["topic"], row["partition"], row["offset"]) for row in window.rows_in(history).collect()}
    events = [replace(ddl_event(row), resumed=True) for row in past.collect()]
    return in_upstream_order(
        event for event in events if event.position not in inside and _concerns(mirrored(event), released)
    )


def _concerns(event: DdlEvent, released: Collection[TableName]) -> bool:
    drops = [change for change in event.changes if isinstance(change, DropDatabase)]
    if any(change.drops(name) for change in drops for name in released):
        return True
    return any(name in released for change in event.changes for name in change.names().ordered)


def with_resumed_rows(
    delivered: DataFrame,
    log: DataFrame,
    cuts: DataFrame | None,
    released: Mapping[TableName, HeldTable],
    events: Iterable[DdlEvent],
    window: Window,
) -> DataFrame:
    """Adds the row changes of the `released` tables that earlier cuts held back.

    They lie after the statement that held the table. Late changes are excluded: an earlier cut has reported them.
    """
    if not released or cuts is None:
        return delivered
    since = _newest_rebuilds(cuts)
    bounds = small_frame(
        delivered.sparkSession,
        [
            (name.database, name.table, held.commit_ts, max(since.get(None, 0), since.get(name, 0)))
            for name, held in released.items()
        ],
        "`database` STRING, `table` STRING, held_from BIGINT, since_cut BIGINT",
    )
    names = ["database", "table"]
    is_held = F.col("commit_ts") >= F.col("held_from")
    past = log.join(F.broadcast(bounds), names).where(is_held).where(F.col("batch_id") <= window.after_batch)
    past = window.rows_before(past)
    resumed = with_segments(past.select(*log.columns), events).where("segment > 0").drop("segment")
    return delivered.unionByName(resumed)


def _newest_rebuilds(cuts: DataFrame) -> dict[TableName | None, int]:
    """Mirror → the newest cut that has rebuilt it alone or with others; None: that has rebuilt all."""
    tables = F.when(F.col("rebuilt"), F.array(F.lit(None).cast("STRUCT<`database`: STRING, `table`: STRING>")))
    rebuilt = cuts.select("cut_id", F.explode(F.coalesce(tables, "rebuilt_tables")).alias("name"))
    newest = rebuilt.groupBy("name").agg(F.max("cut_id").alias("cut_id")).collect()
    return {None if row["name"] is None else TableName(*row["name"]): row["cut_id"] for row in newest}


def count_held_rows(changes: DataFrame, held_from: Mapping[TableName, int]) -> dict[TableName, int]:
    """The number of new changes that each table holds back: those from the segment in `held_from` on. `changes` has
    `segment`."""
    if not held_from:
        return {}
    bounds = small_frame(
        changes.sparkSession,
        [(name.database, name.table, first) for name, first in held_from.items()],
        "`database` STRING, `table` STRING, first INT",
    )
    rows = (
        changes.join(F.broadcast(bounds), ["database", "table"])
        .where(F.col("segment") >= F.col("first"))
        .groupBy("database", "table")
        .count()
        .collect()
    )
    counts = {(row["database"], row["table"]): row["count"] for row in rows}
    return {name: counts.get((name.database, name.table), 0) for name in held_from}


def resumed_tables(held: Iterable[HeldTable], approved: Collection[Position]) -> dict[TableName, HeldTable]:
    """The held tables whose statement is approved."""
    return {table.name: table for table in held if table.statement in approved}
