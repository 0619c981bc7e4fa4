"""Removes values from the plans of tables with masks before they are stored.

Statements may quote values. Steps need only one kind of them: the default of an added column, for existing rows. A run that
resumes the cut reads those defaults from `ddl_history`, which has the full statements.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from cdc_pipeline.lake.tables.ddl_history import NOT_APPLIED
from cdc_pipeline.mirrors.model.ddl_outcome import DdlOutcome
from cdc_pipeline.mirrors.model.steps import ChangeColumns, ChangeSourceRows, Step
from cdc_pipeline.mysql.ddl.statements import event_changes
from cdc_pipeline.mysql.model.schema_changes import (
    AddColumn,
    AlterTable,
    NoRowEffect,
    PartitionDefinitionClause,
    without_merge,
)
from cdc_pipeline.mysql.model.table import ColumnOrigin, Default

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import DataFrame

    from cdc_pipeline.mirrors.cuts.planned_cut import PlannedCut
    from cdc_pipeline.mirrors.settings.ddl_policy import StatementPosition

_REDACTED = Default("expression", "it is in ddl_history")
_TEXTS = frozenset({"sql", "query", "reason", "what", "description", "bound"})
"""Fields that quote a statement."""


def redact(planned: PlannedCut) -> PlannedCut:
    """The plan to store. `restore_values` restores it, apart from messages."""
    rows = replace(
        planned.row_selection,
        events=tuple(_redacted(event) for event in planned.row_selection.events),
        past_events=tuple(_redacted(event) for event in planned.row_selection.past_events),
        resumed=tuple(replace(table, sql="") for table in planned.row_selection.resumed),
    )
    plan = replace(
        planned.plan,
        steps=tuple(_with_origins(step, _without_default) for step in planned.plan.steps),
        outcomes={position: _without_message(outcome) for position, outcome in planned.plan.outcomes.items()},
    )
    settled = {position: _without_message(outcome) for position, outcome in planned.decided.items()}
    return replace(planned, row_selection=rows, plan=plan, decided=settled)


def restore_values(planned: PlannedCut, history: DataFrame) -> PlannedCut:
    """The plan with the defaults that its steps write into existing rows, read from `ddl_history`."""
    wanted = {planned.positions[index] for index in _redacted_events(planned)}
    if not wanted:
        return planned
    offsets = [offset for _, _, offset in wanted]
    rows = history.where(F.col("offset").isin(offsets)).select("topic", "partition", "offset", "kind", "sql").collect()
    defaults = {
        position: _added_defaults(row["kind"], row["sql"] or "")
        for row in rows
        if (position := (row["topic"], row["partition"], row["offset"])) in wanted
    }
    steps = [
        _with_origins(step, partial(_with_default, _defaults_of_step(planned, index, defaults)))
        for index, step in enumerate(planned.plan.steps)
    ]
    return replace(planned, plan=replace(planned.plan, steps=tuple(steps)))


# ---- events and outcomes


def _redacted(value: Any) -> Any:
    """The value without texts of statements, defaults and partition bounds."""
    if isinstance(value, Default):
        return _REDACTED if value.value is not None else value
    if isinstance(value, PartitionDefinitionClause):
        return NoRowEffect("")  # no rows lie before or after either
    if isinstance(value, tuple):
        return tuple(_redacted(item) for item in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changed: dict[str, Any] = {}
    for item in fields(value):
        current = getattr(value, item.name)
        if item.name == "partitioning":
            changed[item.name] = None
        elif isinstance(current, str):
            changed[item.name] = "" if item.name in _TEXTS else current
        else:
            changed[item.name] = _redacted(current)
    return replace(value, **changed)


def _without_message(outcome: DdlOutcome) -> DdlOutcome:
    if outcome.status != NOT_APPLIED:
        return outcome
    message = f"{NOT_APPLIED}: the reason is not stored, because a table of the statement has masked columns"
    return DdlOutcome(outcome.status, [message], outcome.tables)


# ---- defaults


def _with_origins(step: Step, change: Callable[[ColumnOrigin], ColumnOrigin]) -> Step:
    """The step with `change` applied to each added column that is masked."""
    if isinstance(step, (ChangeColumns, ChangeSourceRows)):
        masks = dict(step.state.masks)
        return replace(
            step,
            origins=tuple(
                change(origin) if origin.before is None and origin.after.name in masks else origin
                for origin in step.origins
            ),
        )
    return step


def _without_default(origin: ColumnOrigin) -> ColumnOrigin:
    default = origin.after.default
    return origin if default is None else replace(origin, after=replace(origin.after, default=_redacted(default)))


def _with_default(defaults: Mapping[str, Default | None], origin: ColumnOrigin) -> ColumnOrigin:
    name = origin.after.name.casefold()
    if origin.after.default != _REDACTED or name not in defaults:
        return origin
    return replace(origin, after=replace(origin.after, default=defaults[name]))


def _redacted_events(planned: PlannedCut) -> set[int]:
    """The indexes of events whose steps have redacted defaults."""
    return {
        planned.plan.event_indexes[index]
        for index, step in enumerate(planned.plan.steps)
        if isinstance(step, (ChangeColumns, ChangeSourceRows))
        and any(origin.after.default == _REDACTED for origin in step.origins)
        and 0 <= planned.plan.event_indexes[index] < len(planned.positions)
    }


def _defaults_of_step(
    planned: PlannedCut, index: int, defaults: Mapping[StatementPosition, dict[str, Default | None]]
) -> dict[str, Default | None]:
    event = planned.plan.event_indexes[index]
    return defaults.get(planned.positions[event], {}) if 0 <= event < len(planned.positions) else {}


def _added_defaults(kind: str, sql: str) -> dict[str, Default | None]:
    """The defaults of the columns that the statement adds, by casefolded name."""
    altered: Iterable[Any] = (change for change in map(without_merge, event_changes(kind, "", "", sql)))
    return {
        clause.column.name.casefold(): clause.column.default
        for change in altered
        if isinstance(change, AlterTable)
        for clause in change.clauses
        if isinstance(clause, AddColumn)
    }
