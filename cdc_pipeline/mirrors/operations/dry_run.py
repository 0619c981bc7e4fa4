"""Dry run: what each pending or held statement would do, as the planner describes it. Changes no mirror."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.lake.tables.ddl_history import HELD, PENDING
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_inputs import CutInputs
from cdc_pipeline.mirrors.model.ddl_events import ddl_event, in_upstream_order
from cdc_pipeline.mirrors.model.object_names import ObjectNames
from cdc_pipeline.mirrors.planning.included_ddl import IncludedDdl
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import Permissions, Planner
from cdc_pipeline.positions import Position

if TYPE_CHECKING:
    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.settings.cut_settings import CutSettings


@dataclass(frozen=True)
class PendingStatement:
    """A statement that no cut has applied yet."""

    topic: str
    partition: int
    offset: int
    commit_ts: int
    status: str
    """`held`, or `pending` above the resolved TSO."""
    sql: str
    effect: str
    """What it would do now, if it were approved."""


def pending_statements(lake: Lake, settings: CutSettings) -> tuple[PendingStatement, ...]:
    """The statements that wait for an approval or for the resolved TSO, in stream order, apart from those that concern
    excluded tables only. Row changes between them are ignored."""
    history = lake.read("ddl_history")
    published = published_cut(lake)
    rows = history.where(F.col("status").isin(PENDING, HELD)).collect()
    held = {Position(row["topic"], row["partition"], row["offset"]) for row in rows if row["status"] == HELD}
    unapplied: list[DdlEvent] = [
        replace(ddl_event(row), resumed=row["status"] == HELD) for row in rows if row["kind"] is not None
    ]
    upstream = {source for name in published.names for source in published.upstream(name)}
    included = IncludedDdl(settings.selection, published.sources)
    named = ObjectNames(upstream).resolved(in_upstream_order(unapplied))
    pairs = [(event, included.mirrored_event(event)) for event in named]
    events = [routed for event, routed in pairs if routed.changes or not event.changes]
    inputs = CutInputs(lake, settings.selection, frozenset(held))
    cut_id = published.cut_id + 1
    draft = PlanDraft((), inputs.mirror, published.names, cut_id, settings.time_zone, settings.columns, settings.keys)
    permissions = Permissions(settings.policy, inputs.approved, (), frozenset(table.name for table in published.held))
    planner = Planner(draft, permissions=permissions, ended=partial(inputs.ended_tables, cut_id=cut_id))
    plan = planner.plan(events)
    return tuple(
        PendingStatement(
            *event.position,
            event.commit_ts,
            HELD if event.position in held else PENDING,
            event.sql,
            plan.outcomes[event.position].effect,
        )
        for event in events
    )
