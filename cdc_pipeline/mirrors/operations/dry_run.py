"""Dry run: the statements that wait, and what each does to which mirrors."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import functions as F

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.tables.ddl_history import HELD, PENDING
from cdc_pipeline.mirrors.model.ddl_events import ddl_event, in_upstream_order
from cdc_pipeline.mirrors.planning.included_ddl import mirrored_event
from cdc_pipeline.mirrors.settings.selection import TableSelection
from cdc_pipeline.positions import Position


@dataclass(frozen=True)
class PendingStatement:
    """A statement that no cut has applied yet."""

    position: Position
    commit_ts: int
    status: str
    """`held`, or `pending` above the resolved TSO."""
    sql: str
    effect: str
    """What it does to mirrors, clause by clause."""


def pending_statements(lake: Lake, selection: TableSelection) -> tuple[PendingStatement, ...]:
    """The statements that wait for an approval or for the resolved TSO, in stream order, apart from those that concern
    excluded tables only."""
    rows = lake.read("ddl_history").where(F.col("status").isin(PENDING, HELD)).where("kind IS NOT NULL").collect()
    statuses = {(row["topic"], row["partition"], row["offset"]): row["status"] for row in rows}
    return tuple(
        PendingStatement(
            event.position,
            event.commit_ts,
            statuses[event.position],
            event.sql,
            "; ".join(change.description() for change in changes),
        )
        for event in in_upstream_order(map(ddl_event, rows))
        if (changes := mirrored_event(event, selection).changes)
    )
