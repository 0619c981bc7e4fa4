"""The plan of a cut, and `cut_plans`, which stores that of the newest cut before any mirror changes.

If a run dies, the next one executes the stored plan, even if settings, selection or the planner's code have changed since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from cdc_pipeline.lake.control_tables import newest_version, overwrite_rows, read_rows
from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.changes.cut_rows import RowSelection
from cdc_pipeline.mirrors.changes.late_changes import LateChanges
from cdc_pipeline.mirrors.changes.progress import PublishedCut
from cdc_pipeline.mirrors.changes.window import Window
from cdc_pipeline.mirrors.merge.row_entries import RowSet
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import DdlOutcome
from cdc_pipeline.mirrors.planning.planner import CutPlan
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mysql.model.table import TableSchema
from cdc_pipeline.positions import Position
from cdc_pipeline.spark.small_frames import small_table
from cdc_pipeline.stored_json import AS_PAIRS, StoredJson

_TABLE = "cut_plans"
_PLAN = (
    "cut_id BIGINT, after_tso BIGINT, resolved_tso BIGINT, after_batch BIGINT, last_batch BIGINT, run_id STRING, "
    "plan STRING"
)


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


_PLAN_JSON = StoredJson(tuple[PlannedCut, str], shared=MirrorState | TableSchema)


def plan_to_json(planned: PlannedCut) -> str:
    """The plan with the `mask_key` instead of the mask salt."""
    return _PLAN_JSON.to_json((planned, planned.settings.columns.mask_key))


def plan_from_json(text: str, salt: str = "") -> PlannedCut:
    """Raises LakeError if the text is not a plan, and MaskSaltError if the plan was made with another mask salt."""
    planned, mask_key = _PLAN_JSON.from_json(text)
    columns = planned.settings.columns.with_salt(salt, mask_key)
    return replace(planned, settings=replace(planned.settings, columns=columns))


def is_begun(lake: Lake, published: PublishedCut) -> bool:
    """Whether a cut is begun (its plan stored) and not published."""
    return (newest_version(lake, _TABLE, lake.paths.app_id(_TABLE)) or 0) > published.cut_id


def load_begun_cut(lake: Lake, published: PublishedCut, salt: str = "") -> PlannedCut | None:
    """The plan of the cut that is begun and not published. Raises MaskSaltError if it has another mask salt than `salt`."""
    text = _stored_text(lake, published.cut_id + 1) if is_begun(lake, published) else None
    return None if text is None else plan_from_json(text, salt)


def store_plan(lake: Lake, planned: PlannedCut, run_id: str) -> PlannedCut:
    """Begins a cut: replaces the stored plan with this one.

    Returns the plan that is stored in the end, which is another one if another run began the cut first.
    """
    window, text = planned.window, plan_to_json(planned)
    bounds = (window.cut_id, window.after_tso, window.resolved_tso, window.after_batch, window.last_batch)
    commit = Commit(lake.paths.app_id(_TABLE), window.cut_id, {"cut": window.cut_id, "run_id": run_id})
    overwrite_rows(lake, _TABLE, small_table([(*bounds, run_id, text)], _PLAN), commit)
    stored = _stored_text(lake, window.cut_id)
    return planned if stored in (text, None) else plan_from_json(stored, planned.settings.columns.salt)


def _stored_text(lake: Lake, cut_id: int) -> str | None:
    rows = read_rows(lake, _TABLE, ("cut_id", "=", cut_id), columns=["plan"])
    return rows[0]["plan"] if rows else None
