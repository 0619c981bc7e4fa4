"""Dry run: what each pending or held statement would do, as the planner describes it. Changes no mirror."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.lake.tables.ddl_history import HELD, PENDING
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.changes.window import Window
from cdc_pipeline.mirrors.cuts.cut_inputs import CutInputs, StoredMirrors
from cdc_pipeline.mirrors.model.ddl_events import ddl_event, in_upstream_order
from cdc_pipeline.mirrors.model.upstream_tables import qualified_events
from cdc_pipeline.mirrors.planning.included_ddl import IncludedDdl
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import Permissions, Planner
from cdc_pipeline.positions import Position

if TYPE_CHECKING:
    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
    from cdc_pipeline.mysql.model.table import TableName


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
    selection = settings.selection
    inputs = CutInputs(StoredMirrors(lake, history, selection, selection.by_key(published.names)), frozenset(held))

    def known() -> set[TableName]:
        states = (inputs.mirror(name) for name in published.names)
        return {selection.key(table) for state in states if state is not None for table in state.upstream_tables}

    included = IncludedDdl(selection)
    named = qualified_events(in_upstream_order(unapplied), known, selection.key)
    pairs = [(event, included.mirrored_event(event)) for event in named]
    events = [routed for event, routed in pairs if routed.changes or not event.changes]
    window = Window(published.cut_id + 1, None, None, published.last_batch, published.last_batch)
    columns, keys = settings.columns, settings.keys
    draft = PlanDraft((), inputs.mirror, published.names, window.cut_id, settings.time_zone, columns, keys, selection)
    resumed = frozenset(selection.key(table.name) for table in published.held)
    permissions = Permissions(settings.policy, inputs.approved, (), resumed)
    plan = Planner(draft, permissions=permissions, dropped=lambda name: inputs.dropped_tables(name, window)).plan(
        events
    )
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
