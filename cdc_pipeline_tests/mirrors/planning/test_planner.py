"""An unexpected error while planning quarantines the tables of its statement or rows only. Without Spark."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

import pytest

from cdc_pipeline.errors import LakeError
from cdc_pipeline.mirrors.planning import alter_planner, inferred_schema
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import CutPlan, Planner, plan_tables
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.plans.by_hand import ddl_event, mirror_state, row_group

_ROWS, _STATEMENT = (inferred_schema, "partial_columns"), (alter_planner, "altered")


def _planned(*statements: str) -> CutPlan:
    before = {state.name: state for state in map(mirror_state, "abc")}
    groups = [row_group(name, segment) for name in before for segment in (0, 1)]

    def planner_for(held: tuple[HeldTable, ...]) -> Planner:
        return Planner(PlanDraft(groups, before.get, frozenset(before), 2, CutSettings("UTC")), held=held)

    events = [ddl_event(place, sql) for place, sql in enumerate(statements, 1)]
    return plan_tables(planner_for, events, (), 7, lambda line: None)


def _broken(place: tuple[Any, str], word: str, error: type[Exception] = RuntimeError) -> AbstractContextManager[object]:
    module, function = place
    real = getattr(module, function)

    def fails(*arguments: Any, **named: Any) -> Any:
        if word in repr(arguments):
            raise error("unexpected")
        return real(*arguments, **named)

    return patch.object(module, function, fails)


_BROKEN = "ALTER TABLE b ADD broken INT"


@pytest.mark.parametrize(
    ("broken", "statements", "held", "statuses", "changed"),
    [
        (nullcontext(), ("ALTER TABLE b ADD n INT", "DROP TABLE b"), "", ("applied", "applied"), "abc"),
        (_broken(_ROWS, "table='b'"), ("ALTER TABLE a ADD n INT",), "b", ("applied",), "ac"),
        # the rows before the first statement
        (_broken(_ROWS, "table='b'"), ("ALTER TABLE b ADD n INT", "DROP TABLE b"), "b", ("held", "held"), "ac"),
        (_broken(_STATEMENT, "'broken'"), (_BROKEN, "ALTER TABLE a ADD n INT"), "b", ("held", "applied"), "ac"),
        (_broken(_STATEMENT, "'broken'"), (_BROKEN, "RENAME TABLE b TO d"), "bd", ("held", "held"), "ac"),
        # rows of c before the statement that ties it
        (_broken(_STATEMENT, "'broken'"), ("RENAME TABLE b TO d, c TO b", _BROKEN), "bcd", ("held", "held"), "ac"),
    ],
)
def test_the_tables_of_an_error_wait(
    broken: AbstractContextManager[object],
    statements: tuple[str, ...],
    held: str,
    statuses: tuple[str, ...],
    changed: str,
) -> None:
    with broken:
        plan = _planned(*statements)
    assert {table.name.table for table in plan.held} == set(held)
    assert {table.error for table in plan.held} <= {"planning failed (RuntimeError)"}
    assert not held or 7 in {table.commit_ts for table in plan.held}
    assert all(plan.held_from[TableName("db", name)] <= 1 for name in held)
    assert tuple(outcome.status for outcome in plan.outcomes.values()) == statuses
    assert {step.state.name.table for step in plan.steps} == set(changed)


def test_errors_of_the_pipeline_are_raised() -> None:
    with _broken(_STATEMENT, "'broken'", LakeError), pytest.raises(LakeError):
        _planned("ALTER TABLE b ADD broken INT")
