"""The plan of tables that have masked columns, as it is stored: without what statements say of values.

Statements are parted from their values, of which steps need one kind: the default that an added column gives to older rows.
A run that finishes the cut reads it in `ddl_history` again, where statements stand as they came.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from cdc_pipeline.lake.tables.ddl_history import NOT_APPLIED
from cdc_pipeline.mirrors.model.ddl_outcome import DdlOutcome
from cdc_pipeline.mirrors.model.steps import ChangeColumns, ChangeShardRows, Step
from cdc_pipeline.mysql.ddl.statements import changes_of
from cdc_pipeline.mysql.model.schema_changes import (
    AddColumn,
    AlterTable,
    NoRowEffect,
    PartitionDefinitionClause,
    of_table,
)
from cdc_pipeline.mysql.model.table import ColumnOrigin, Default

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import DataFrame

    from cdc_pipeline.mirrors.cuts.planned_cut import PlannedCut
    from cdc_pipeline.mirrors.settings.ddl_policy import StatementPosition

_HIDDEN = Default("expression", "it is in ddl_history")
_TEXTS = frozenset({"sql", "query", "reason", "what", "bound"})
"""Fields that quote a statement."""


def without_values(planned: PlannedCut) -> PlannedCut:
    """The plan as it may be stored. `with_values` gives it back, but for words."""
    rows = replace(
        planned.rows,
        events=tuple(_bare(event) for event in planned.rows.events),
        past=tuple(_bare(event) for event in planned.rows.past),
        released=tuple(replace(table, sql="") for table in planned.rows.released),
    )
    plan = replace(
        planned.plan,
        steps=tuple(_with_origins(step, _hidden_default) for step in planned.plan.steps),
        outcomes={position: _without_words(outcome) for position, outcome in planned.plan.outcomes.items()},
    )
    settled = {position: _without_words(outcome) for position, outcome in planned.settled.items()}
    return replace(planned, rows=rows, plan=plan, settled=settled)


def with_values(planned: PlannedCut, history: DataFrame) -> PlannedCut:
    """The plan with the defaults that its steps give to older rows."""
    wanted = {planned.positions[place] for place in _hiding_events(planned)}
    if not wanted:
        return planned
    offsets = [offset for _, _, offset in wanted]
    found = history.where(F.col("offset").isin(offsets)).select("topic", "partition", "offset", "kind", "sql").collect()
    defaults = {
        position: _added_defaults(row["kind"], row["sql"] or "")
        for row in found
        if (position := (row["topic"], row["partition"], row["offset"])) in wanted
    }
    steps = [
        _with_origins(step, partial(_told_default, _of_event(planned, place, defaults)))
        for place, step in enumerate(planned.plan.steps)
    ]
    return replace(planned, plan=replace(planned.plan, steps=tuple(steps)))


# ---- events and outcomes


def _bare(value: Any) -> Any:
    """The value without texts of statements, defaults, and bounds of partitions."""
    if isinstance(value, Default):
        return _HIDDEN if value.value is not None else value
    if isinstance(value, PartitionDefinitionClause):
        return NoRowEffect("")  # it parts no rows either
    if isinstance(value, tuple):
        return tuple(_bare(item) for item in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changed: dict[str, Any] = {}
    for item in fields(value):
        now = getattr(value, item.name)
        if item.name == "partitioning":
            changed[item.name] = None
        elif isinstance(now, str):
            changed[item.name] = "" if item.name in _TEXTS else now
        else:
            changed[item.name] = _bare(now)
    return replace(value, **changed)


def _without_words(outcome: DdlOutcome) -> DdlOutcome:
    if outcome.status != NOT_APPLIED:
        return outcome
    words = f"{NOT_APPLIED}: why is not kept, as a table of it has masked columns"
    return DdlOutcome(outcome.status, [words], outcome.tables)


# ---- defaults


def _with_origins(step: Step, told: Callable[[ColumnOrigin], ColumnOrigin]) -> Step:
    if isinstance(step, (ChangeColumns, ChangeShardRows)):
        masks = dict(step.state.masks)
        return replace(
            step,
            origins=tuple(
                told(origin) if origin.before is None and origin.after.name in masks else origin
                for origin in step.origins
            ),
        )
    return step


def _hidden_default(origin: ColumnOrigin) -> ColumnOrigin:
    default = origin.after.default
    return origin if default is None else replace(origin, after=replace(origin.after, default=_bare(default)))


def _told_default(told: Mapping[str, Default | None], origin: ColumnOrigin) -> ColumnOrigin:
    name = origin.after.name.casefold()
    if origin.after.default != _HIDDEN or name not in told:
        return origin
    return replace(origin, after=replace(origin.after, default=told[name]))


def _hiding_events(planned: PlannedCut) -> set[int]:
    """The places of events whose steps have hidden defaults."""
    return {
        planned.plan.during[place]
        for place, step in enumerate(planned.plan.steps)
        if isinstance(step, (ChangeColumns, ChangeShardRows))
        and any(origin.after.default == _HIDDEN for origin in step.origins)
        and 0 <= planned.plan.during[place] < len(planned.positions)
    }


def _of_event(
    planned: PlannedCut, place: int, defaults: Mapping[StatementPosition, dict[str, Default | None]]
) -> dict[str, Default | None]:
    event = planned.plan.during[place]
    return defaults.get(planned.positions[event], {}) if 0 <= event < len(planned.positions) else {}


def _added_defaults(kind: str, sql: str) -> dict[str, Default | None]:
    """The defaults of the columns that the statement adds, by their folded names."""
    altered: Iterable[Any] = (change for change in map(of_table, changes_of(kind, "", "", sql)))
    return {
        clause.column.name.casefold(): clause.column.default
        for change in altered
        if isinstance(change, AlterTable)
        for clause in change.clauses
        if isinstance(clause, AddColumn)
    }
