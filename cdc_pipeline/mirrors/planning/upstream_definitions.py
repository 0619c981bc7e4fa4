"""What DDL alone says of upstream's tables, whether they are mirrored or not.

Of a table that is left out there is no mirror to ask, yet others are made like it, or it comes in by a RENAME. The planner
that makes mirrors tells its definition, from all statements so far and no rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.changes.unqualified_names import with_databases
from cdc_pipeline.mirrors.model.ddl_events import in_order
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import Planner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mysql.model.schema_changes import SchemaChange
    from cdc_pipeline.mysql.model.table import TableName


class UpstreamDefinitions:
    """`past` gives the events of earlier cuts, each once. They are read when a definition is first asked
    for, which is seldom."""

    def __init__(self, past: Callable[[], Iterable[DdlEvent]], time_zone: str) -> None:
        self._past = past
        self._time_zone = time_zone
        self._waiting: list[DdlEvent] = []
        self._draft: PlanDraft | None = None

    def follow(self, event: DdlEvent, change: SchemaChange) -> None:
        """Goes on to the point after this change. One that waited in an earlier cut is among the past ones."""
        if not event.returning:
            self._waiting.append(replace(event, changes=(change,)))

    def of(self, name: TableName) -> MirrorState | None:
        """The table as a mirror of it would be defined at this point; None where it is not known."""
        state = self._followed().state(name)
        return None if state is None or state.inferred or not state.schema.columns else state

    def _followed(self) -> PlanDraft:
        if self._draft is None:
            self._draft = PlanDraft((), lambda name: None, frozenset(), 0, self._time_zone)
            self._waiting = [*with_databases(in_order(self._past()), ()), *self._waiting]
        Planner(self._draft).plan(self._waiting)
        self._waiting = []
        return self._draft
