"""Held and quarantined tables: approved statements, and how many rows wait.

Each cut stores which tables wait (`consistent_cuts.held`). A rebuild ends the wait (`operations.rebuild`). `ddl_approvals`
stores the approved statements.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc_pipeline.lake.control_tables import append_rows, read_rows
from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.tables.ddl_history import APPLIED
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import POSITION, Position
from cdc_pipeline.spark.small_frames import small_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame

    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable

_APPROVALS = "ddl_approvals"
_APPROVALS_SCHEMA = "topic STRING, `partition` INT, `offset` BIGINT, run_id STRING, approved_at TIMESTAMP"


def permitted_statements(lake: Lake) -> frozenset[Position]:
    """The positions of the statements that a replay holds under no policy: those that are approved, and those that the
    mirrors have applied."""
    approved = read_rows(lake, _APPROVALS, columns=POSITION)
    applied = read_rows(lake, "ddl_history", ("status", "=", APPLIED), columns=POSITION)
    return frozenset(Position(**row) for row in (*approved, *applied))


def approve(lake: Lake, held: Iterable[HeldTable], run_id: str) -> None:
    """Approves the statements that hold these tables. The next rebuild of the tables applies them."""
    now = datetime.now(timezone.utc)
    rows = [(*statement, run_id, now) for statement in sorted({table.statement for table in held})]
    commit = Commit(f"cdc:{lake.paths.pipeline}:ddl_approvals:{run_id}", 1, {"run_id": run_id})
    append_rows(lake, _APPROVALS, small_table(rows, _APPROVALS_SCHEMA), commit)


def count_held_rows(changes: DataFrame, held_from: Mapping[TableName, int]) -> dict[TableName, int]:
    """The number of new changes that each table holds back: those from the segment in `held_from` on. `changes` has
    `segment`."""
    if not held_from:
        return {}
    held = dict.fromkeys(held_from, 0)
    for database, table, segment, count in changes.groupBy("database", "table", "segment").count().collect():
        if (name := TableName(database, table)) in held and segment >= held_from[name]:
            held[name] += count
    return held
