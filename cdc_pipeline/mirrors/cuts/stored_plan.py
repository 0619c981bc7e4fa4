"""`cut_plans`: the plan of the newest cut, stored before any mirror changes.

If a run dies, the next one executes the stored plan, even if settings, selection or the planner's code have changed since.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.lake.delta import Commit, committed_version, overwrite_once
from cdc_pipeline.lake.delta_log import read_newest_note
from cdc_pipeline.mirrors.cuts.planned_cut import PlannedCut
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mysql.model.table import TableSchema
from cdc_pipeline.spark.small_frames import small_frame
from cdc_pipeline.stored_json import StoredJson

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.mirrors.changes.progress import PublishedCut

_TABLE = "cut_plans"
_PLAN = (
    "cut_id BIGINT, after_tso BIGINT, resolved_tso BIGINT, after_batch BIGINT, last_batch BIGINT, run_id STRING, "
    "plan STRING"
)
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
    return (committed_version(lake.spark, lake.paths.table(_TABLE), lake.paths.app_id(_TABLE)) or 0) > published.cut_id


def load_begun_cut(lake: Lake, published: PublishedCut, salt: str = "") -> PlannedCut | None:
    """The plan of the cut that is begun and not published. Raises MaskSaltError if it has another mask salt than `salt`."""
    return _load(lake, published.cut_id + 1, salt) if is_begun(lake, published) else None


def _load(lake: Lake, cut_id: int, salt: str) -> PlannedCut | None:
    row = lake.read(_TABLE).where(F.col("cut_id") == cut_id).first()
    return None if row is None else plan_from_json(row["plan"], salt)


def store_plan(lake: Lake, planned: PlannedCut, run_id: str) -> PlannedCut:
    """Begins a cut: replaces the stored plan with this one.

    Returns the plan that is stored in the end, which is another one if another run began the cut first.
    """
    cut_id = planned.window.cut_id
    note = {"cut": cut_id, "run_id": run_id, "plan": uuid.uuid4().hex}
    overwrite_once(
        _frame(lake.spark, planned, run_id), lake.paths.table(_TABLE), Commit(lake.paths.app_id(_TABLE), cut_id, note)
    )
    if read_newest_note(lake.spark, lake.paths.table(_TABLE)).get("plan") == note["plan"]:
        return planned
    return _load(lake, cut_id, planned.settings.columns.salt) or planned


def _frame(spark: SparkSession, planned: PlannedCut, run_id: str) -> DataFrame:
    window = planned.window
    bounds = (window.cut_id, window.after_tso, window.resolved_tso, window.after_batch, window.last_batch)
    return small_frame(spark, [(*bounds, run_id, plan_to_json(planned))], _PLAN)
