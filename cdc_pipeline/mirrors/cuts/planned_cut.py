"""The plan of a cut: all that a run needs to execute it, so that every run executes the same steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from cdc_pipeline.mirrors.changes.cut_rows import RowSelection
from cdc_pipeline.mirrors.changes.late_changes import LateChanges
from cdc_pipeline.mirrors.changes.window import Window
from cdc_pipeline.mirrors.merge.row_entries import RowSet
from cdc_pipeline.mirrors.model.steps import DdlOutcome
from cdc_pipeline.mirrors.planning.planner import CutPlan
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.positions import Position
from cdc_pipeline.stored_json import AS_PAIRS


@dataclass(frozen=True)
class PlannedCut:
    """Stored as JSON in `cut_plans`: class and field names, and what they mean, belong to the lake's format."""

    window: Window
    settings: CutSettings
    """As declared when the cut began. The mask salt is not stored."""
    row_selection: RowSelection
    """Which row changes the cut takes in, and between which statements each lies."""
    plan: CutPlan
    row_sets: tuple[RowSet, ...]
    """The rows of each ApplyRows step, and the key that identifies them."""
    decided: Annotated[Mapping[Position, DdlOutcome], AS_PAIRS]
    """Outcomes of statements that need no step."""
    late: LateChanges
    selection_changes: tuple[str, ...] = ()
    """One sentence for each effect of a changed selection."""
    plan_id: str = ""
    """Unique: distinguishes plans for the same cut number, which a restored lake may have."""

    @property
    def outcomes(self) -> dict[Position, DdlOutcome]:
        """The outcome of each statement of the cut."""
        return {**self.decided, **self.plan.outcomes}
