"""The definitions of upstream's tables by DDL alone, mirrored or not.

A table that the selection excludes has no mirror, but CREATE TABLE LIKE or RENAME may need its definition. A planner
without rows computes it from all statements so far.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import Planner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mysql.model.schema_changes import SchemaChange
    from cdc_pipeline.mysql.model.table import TableName


class UpstreamDefinitions:
    """The definitions at one point of the stream.

    past: returns the events of earlier cuts, each once, in order. Called only when a definition is needed, which is rare.
    """

    def __init__(self, past: Callable[[], Iterable[DdlEvent]], time_zone: str) -> None:
        self._past = past
        self._time_zone = time_zone
        self._pending: list[DdlEvent] = []
        self._draft: PlanDraft | None = None

    def follow(self, event: DdlEvent, change: SchemaChange) -> None:
        """Moves on to the point after this change."""
        self._pending.append(replace(event, changes=(change,)))

    def definition(self, name: TableName) -> MirrorState | None:
        """The table as its mirror would be defined at this point; None if unknown."""
        state = self._advanced().state(name)
        return None if state is None or state.inferred or not state.schema.columns else state

    def _advanced(self) -> PlanDraft:
        if self._draft is None:
            self._draft = PlanDraft((), lambda name: None, frozenset(), 0, self._time_zone)
            self._pending = [*self._past(), *self._pending]
        Planner(self._draft).plan(self._pending)
        self._pending = []
        return self._draft
