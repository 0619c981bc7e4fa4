"""An unexpected error while planning affects only the table of its statement or rows. Without Spark."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from cdc_pipeline.errors import LakeError
from cdc_pipeline.gaps import GapKind
from cdc_pipeline.mirrors.model.steps import ApplyRows
from cdc_pipeline.mirrors.planning import alter_planner, plan_draft
from cdc_pipeline.mirrors.planning.guarded_planner import GuardedPlanner
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import CutPlan, Planner
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.plans.by_hand import ddl_event, mirror_state, row_group

if TYPE_CHECKING:
    from collections.abc import Iterator

_STATEMENTS = (
    "ALTER TABLE a ADD n INT",
    "ALTER TABLE b ADD broken INT",
    "RENAME TABLE a TO c, b TO a",
    "DROP TABLE c",
    "CREATE TABLE d (id INT PRIMARY KEY)",
)


def _planned(kind: type[Planner], *statements: str) -> tuple[PlanDraft, CutPlan]:
    before = {state.name: state for state in map(mirror_state, "ab")}
    names = [TableName("db", name) for name in "ab"]
    groups = [row_group(name, segment) for name in names for segment in (0, 1)]
    draft = PlanDraft(groups, before.get, frozenset(before), 2, "UTC")
    return draft, kind(draft).plan([ddl_event(place, sql) for place, sql in enumerate(statements, 1)])


@contextmanager
def _broken(module: Any, function: str, word: str, error: type[Exception] = RuntimeError) -> Iterator[None]:
    real = getattr(module, function)

    def fails(*arguments: Any, **named: Any) -> Any:
        if word in repr(arguments):
            raise error("unexpected")
        return real(*arguments, **named)

    with patch.object(module, function, fails):
        yield


def test_without_an_error_both_planners_agree() -> None:
    assert _planned(GuardedPlanner, *_STATEMENTS)[1] == _planned(Planner, *_STATEMENTS)[1]


def test_a_statement_that_cannot_be_planned_is_not_applied() -> None:
    with _broken(alter_planner, "altered", "'broken'"):
        with pytest.raises(RuntimeError):
            _planned(Planner, *_STATEMENTS)
        draft, plan = _planned(GuardedPlanner, *_STATEMENTS)
    assert [outcome.status for outcome in plan.outcomes.values()] == [
        *("applied", "not applied yet", "applied", "applied", "applied")
    ]
    (gap,) = draft.state(TableName("db", "a")).gaps  # type: ignore[union-attr]
    assert gap.kind == GapKind.DDL_NOT_APPLIED
    assert any("planning failed (RuntimeError: unexpected)" in outcome.effect for outcome in plan.outcomes.values())
    # each row is applied once
    assert [(step.source.table, step.segments) for step in plan.steps if isinstance(step, ApplyRows)] == [
        *(("a", (0,)), ("b", (0,)), ("a", (1,)), ("b", (1,)))
    ]


def test_a_table_whose_rows_cannot_be_planned_is_quarantined() -> None:
    with _broken(plan_draft, "partial_columns", "table='b'"):
        with pytest.raises(RuntimeError):
            _planned(Planner, "ALTER TABLE a ADD n INT")
        _, plan = _planned(GuardedPlanner, "ALTER TABLE a ADD n INT")
    ((held),) = plan.held
    assert (str(held.name), held.error) == (
        "db.b",
        "planning failed (RuntimeError)",
    )
    assert plan.held_from == {TableName("db", "b"): 0}
    assert {step.state.name.table for step in plan.steps} == {"a"}
    # also if a statement of the table comes first: its later statements are held
    with _broken(plan_draft, "partial_columns", "table='b'"):
        _, plan = _planned(GuardedPlanner, "ALTER TABLE b ADD n INT", "DROP TABLE b", "ALTER TABLE a ADD n INT")
    assert [outcome.status for outcome in plan.outcomes.values()] == ["not applied yet", "held", "applied"]
    assert plan.held_from == {TableName("db", "b"): 0}
    assert {step.state.name.table for step in plan.steps} == {"a"}


def test_errors_of_the_pipeline_are_raised() -> None:
    with _broken(alter_planner, "altered", "'broken'", LakeError), pytest.raises(LakeError):
        _planned(GuardedPlanner, *_STATEMENTS)


def test_a_restored_draft_equals_its_snapshot() -> None:
    draft, _ = _planned(Planner)
    saved = draft.snapshot()
    before = (list(draft.steps), draft.names(), draft.first_pending_segments())
    draft.create(replace(mirror_state("z"), mirror_id="z"))
    draft.pass_event(TableName("db", "z"))
    draft.restore(saved)
    assert (list(draft.steps), draft.names(), draft.first_pending_segments()) == before
    assert draft.passed_events(TableName("db", "z")) == 0
