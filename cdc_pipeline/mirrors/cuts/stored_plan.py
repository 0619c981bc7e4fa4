"""`cut_plans`: the plan of the newest cut, stored before any mirror changes.

If a run dies, the next one executes the stored plan, even if settings, selection or the planner's code have changed since.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import is_dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline import gaps
from cdc_pipeline.lake.delta import Commit, committed_version, overwrite_once
from cdc_pipeline.lake.delta_log import read_newest_note
from cdc_pipeline.mirrors.changes import late_changes, late_ddl, segments
from cdc_pipeline.mirrors.changes.cut_rows import RowSelection
from cdc_pipeline.mirrors.changes.window import Window
from cdc_pipeline.mirrors.cuts.plan_json import CustomFormat, JsonFormat
from cdc_pipeline.mirrors.cuts.planned_cut import PlannedCut
from cdc_pipeline.mirrors.merge import net_changes, row_identity
from cdc_pipeline.mirrors.model import computed_columns, ddl_events, ddl_outcome, shards, steps
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.planning.planner import CutPlan
from cdc_pipeline.mirrors.settings import cut_settings, ddl_policy
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy
from cdc_pipeline.mirrors.settings.selection import TableSelection
from cdc_pipeline.mysql.ddl.stored_schema import schema_from_json
from cdc_pipeline.mysql.expressions import partition_rows
from cdc_pipeline.mysql.model import partition_clauses, partitions, schema_changes, table
from cdc_pipeline.mysql.model.table import TableSchema
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from types import ModuleType

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.mirrors.changes.progress import PublishedCut

_TABLE = "cut_plans"
_PLAN = (
    "cut_id BIGINT, after_tso BIGINT, resolved_tso BIGINT, after_batch BIGINT, last_batch BIGINT, run_id STRING, "
    "plan STRING"
)


def _dataclasses(*modules: ModuleType) -> tuple[type, ...]:
    """All dataclasses that the modules define."""
    return tuple(
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and is_dataclass(kind) and kind.__module__ == module.__name__
    )


# The classes that a plan consists of. Names of classes and fields belong to the lake's format: a test reads a stored plan.
_CLASSES: tuple[type, ...] = (
    *(PlannedCut, CutPlan, Window, RowSelection, ColumnRules, DdlPolicy, TableSelection, MirrorState, gaps.GapKind),
    *(cut_settings.CutSettings, ddl_policy.HeldTable, ddl_outcome.DdlOutcome, ddl_events.DdlEvent, net_changes.RowSet),
    *(
        segments.Evidence,
        row_identity.Identity,
        late_ddl.Replay,
        late_changes.LateChanges,
        late_changes.Breach,
        shards.SourceTable,
        shards.SourceTableName,
        computed_columns.ComputedColumn,
        partition_rows.SparkCondition,
    ),
    *_dataclasses(steps, schema_changes, partition_clauses, gaps, table, partitions),
)


def plan_format(salt: str = "") -> JsonFormat:
    """The format of a stored PlannedCut, which has no salt. Reading raises MaskSaltError if `salt`, the mask salt, differs
    from the one that the plan was made with."""
    return JsonFormat(
        _CLASSES,
        {
            MirrorState: CustomFormat(lambda state: state.properties(), MirrorState.from_properties),
            TableSchema: CustomFormat(
                lambda schema: json.loads(schema.to_json()), lambda plain: schema_from_json(json.dumps(plain))
            ),
            ColumnRules: CustomFormat(
                lambda rules: rules.to_plain(), lambda plain: ColumnRules.from_plain(plain, salt)
            ),
            TableSelection: CustomFormat(lambda selection: selection.to_json(), TableSelection.from_json),
            DdlPolicy: CustomFormat(lambda policy: policy.to_json(), DdlPolicy.from_json),
        },
        frozenset({MirrorState, TableSchema}),
    )


def is_begun(lake: Lake, published: PublishedCut) -> bool:
    """Whether a cut is begun (its plan stored) and not published."""
    return (committed_version(lake.spark, lake.paths.table(_TABLE), lake.paths.app_id(_TABLE)) or 0) > published.cut_id


def load_begun_cut(lake: Lake, published: PublishedCut, salt: str = "") -> PlannedCut | None:
    """The plan of the cut that is begun and not published. Raises MaskSaltError if it has another mask salt than `salt`."""
    return _load(lake, published.cut_id + 1, salt) if is_begun(lake, published) else None


def _load(lake: Lake, cut_id: int, salt: str) -> PlannedCut | None:
    row = lake.read(_TABLE).where(F.col("cut_id") == cut_id).first()
    if row is None:
        return None
    planned: PlannedCut = plan_format(salt).from_json(row["plan"])
    return planned


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
    text = plan_format().to_json(planned)
    bounds = (window.cut_id, window.after_tso, window.resolved_tso, window.after_batch, window.last_batch)
    return small_frame(spark, [(*bounds, run_id, text)], _PLAN)
