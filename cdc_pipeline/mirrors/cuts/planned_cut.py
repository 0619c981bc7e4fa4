"""A cut as it is planned: all that a run needs to carry it out, so that any run does the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc_pipeline.mirrors.changes.cut_rows import RowsTold
    from cdc_pipeline.mirrors.changes.late_changes import LateChanges
    from cdc_pipeline.mirrors.changes.window import Window
    from cdc_pipeline.mirrors.merge.net_changes import RowSet
    from cdc_pipeline.mirrors.model.ddl_outcome import DdlOutcome
    from cdc_pipeline.mirrors.planning.planner import CutPlan
    from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
    from cdc_pipeline.mirrors.settings.ddl_policy import StatementPosition
    from cdc_pipeline.mirrors.settings.selection import Sources


@dataclass(frozen=True)
class PlannedCut:
    """`settings` are those that the cut is made with, whatever is declared when it is finished; the salt is no part of what
    is stored of them. `rows` tell which row changes it takes in, `row_sets` which of them each ApplyRows step lets in, by
    which key. `settled` are the statements that are decided without a step. `sources` are upstream's tables of mirrors that
    have names of their own. `held_left_out` are row changes that waited with tables that are not included any more.
    """

    window: Window
    settings: CutSettings
    rows: RowsTold
    plan: CutPlan
    row_sets: tuple[RowSet, ...]
    settled: Mapping[StatementPosition, DdlOutcome]
    late: LateChanges
    sources: Sources = field(default_factory=dict)
    selection_changes: tuple[str, ...] = ()
    held_left_out: int = 0
    hides: bool = False
    """Whether tables of the cut have masked columns: then what is stored has no value of a statement (`hidden_plan`)."""
    plan_id: str = ""
    """Tells this plan from any other, also from one of a cut of the same number in a lake that was taken back."""

    @property
    def outcomes(self) -> dict[StatementPosition, DdlOutcome]:
        """What becomes of each statement of the cut."""
        return {**self.settled, **self.plan.outcomes}

    @property
    def positions(self) -> tuple[StatementPosition, ...]:
        """Those of `rows.events`."""
        return tuple(event.position for event in self.rows.events)
