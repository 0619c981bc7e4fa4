"""Plans of mirrors with `soft_delete`: which mirrors have it, and with which key. Without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from cdc_pipeline.mirrors.changes.row_groups import RowGroup
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.model.state import DELETED, MirrorState
from cdc_pipeline.mirrors.model.steps import ApplyRows, PurgeDeletedRows, PurgeSurplusRows
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import CutPlan, Planner
from cdc_pipeline.mirrors.settings.column_rules import HAS_OWN_DELETED, ColumnRules, soft_delete_problems
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mysql.ddl.statements import event_changes
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.messages import tso

SOFT = ColumnRules(soft_delete=("db.s*", "*.all"))
KEYS = {"db.sd": ("v",)}
S1 = "CREATE TABLE s1 (id INT PRIMARY KEY, v INT NOT NULL)"


def planned(
    *statements: str, known: Sequence[MirrorState] = (), rules: ColumnRules = SOFT, groups: Sequence[RowGroup] = ()
) -> tuple[PlanDraft, CutPlan]:
    before = {state.name: state for state in known}
    draft = PlanDraft(groups, before.get, frozenset(before), 1, CutSettings("UTC", KEYS, columns=rules))
    return draft, Planner(draft).plan([_event(place, sql) for place, sql in enumerate(statements, 1)])


def _event(place: int, sql: str) -> DdlEvent:
    changes = event_changes("ddl", "db", "", sql)
    return DdlEvent("t", 0, place, "db", "", tso(place), True, tso(place) >> 18, None, sql, changes, "ticdc")


def _group(table: str, segment: int, *columns: str, images: bool = True, inserts: bool = True) -> RowGroup:
    place = (1, "t", 0, segment)
    return RowGroup(TableName("db", table), segment, columns, ("id",), 1, "ticdc", images, place, inserts)


# name → (statements, table, its soft-delete key, its gaps)
CASES: dict[str, tuple[list[str], str, tuple[str, ...] | None, tuple[str, ...]]] = {
    "a pattern matches": ([S1], "s1", ("id",), ()),
    "none does": (["CREATE TABLE t (id INT PRIMARY KEY)"], "t", None, ()),
    "case does not count": (["CREATE TABLE S (id INT PRIMARY KEY)"], "s", ("id",), ()),
    "a table without a key": (["CREATE TABLE s (id INT)"], "s", None, ()),
    "a key that comes later": (["CREATE TABLE s (id INT)", "ALTER TABLE s ADD PRIMARY KEY (id)"], "s", None, ()),
    "a declared key": (["CREATE TABLE sd (id INT, v INT)"], "sd", ("v",), ()),
    "a copy": (["CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE s LIKE t"], "s", ("id",), ()),
    "renamed away": ([S1, "RENAME TABLE s1 TO t"], "t", ("id",), ()),
    "renamed to a name of a pattern": (
        ["CREATE TABLE t (id INT PRIMARY KEY)", "RENAME TABLE t TO s"],
        "s",
        None,
        (),
    ),
    "a key that is renamed": ([S1, "ALTER TABLE s1 RENAME COLUMN id TO k"], "s1", ("k",), ()),
    "another column of another type": ([S1, "ALTER TABLE s1 MODIFY v BIGINT NOT NULL"], "s1", ("id",), ()),
    "a key of another type": ([S1, "ALTER TABLE s1 MODIFY id VARCHAR(5)"], "s1", (), ()),
    "a column of the name": (
        [f"CREATE TABLE s (id INT PRIMARY KEY, {DELETED.upper()} INT)"],
        "s",
        None,
        (HAS_OWN_DELETED,),
    ),
    "a column that gets the name": (
        [S1, f"ALTER TABLE s1 RENAME COLUMN v TO {DELETED}"],
        "s1",
        None,
        (HAS_OWN_DELETED,),
    ),
    "emptied": ([S1, "TRUNCATE TABLE s1"], "s1", ("id",), ()),
}


@pytest.mark.parametrize("name", CASES)
def test_soft_delete_key_and_gaps(name: str) -> None:
    statements, table, key, gaps = CASES[name]
    draft, plan = planned(*statements)
    state = draft.state(TableName("db", table))
    assert state is not None
    assert (state.soft_delete_key, state.gaps) == (key, gaps)
    assert MirrorState.from_properties(state.properties()) == state
    assert (state.spark_schema().names[-1] == DELETED) == (key is not None)
    assert sum(isinstance(step, PurgeDeletedRows) for step in plan.steps) == name.count("gets")
    # one cut per statement gives the same
    known: list[MirrorState] = []
    for sql in statements:
        draft, plan = planned(sql, known=known)
        known = [live for name in draft.names() if (live := draft.state(name)) is not None]
    (last,) = (live for live in known if live.name.table.lower() == table)
    assert replace(last, mirror_id=state.mirror_id) == state


def _steps(plan: CutPlan) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for step in plan.steps:
        detail = (
            (step.into_empty, step.absent_in_deletes) if isinstance(step, ApplyRows) else step.state.soft_delete_key
        )
        found.append((type(step).__name__, detail))
    return found


def test_soft_delete_applies_rows_before_a_truncate_and_merges_later_ones() -> None:
    groups = [_group("s1", segment, "id", "v") for segment in (1, 2)]
    _, plan = planned(S1, "TRUNCATE TABLE s1", groups=groups)
    into_empty, merged = (True, ()), (False, ())
    assert _steps(plan) == [
        ("CreateMirror", ("id",)),
        ("ApplyRows", into_empty),
        ("TruncateMirror", ("id",)),
        ("ApplyRows", merged),
    ]
    _, plan = planned(S1, "TRUNCATE TABLE s1", groups=groups, rules=ColumnRules())
    assert _steps(plan) == [("CreateMirror", None), ("TruncateMirror", None), ("ApplyRows", into_empty)]


def test_keys_are_made_unique_before_rows_are_merged() -> None:
    new_key = "ALTER TABLE s1 DROP PRIMARY KEY, ADD PRIMARY KEY (v)"
    groups = [_group("s1", 1, "id", "v"), _group("s1", 2, "id", "v"), _group("s1", 2, "v", images=False)]
    _, plan = planned(S1, new_key, groups=groups)
    assert _steps(plan)[-2:] == [("PurgeSurplusRows", ("v",)), ("ApplyRows", (False, ("id",)))]
    assert sum(isinstance(step, PurgeSurplusRows) for step in plan.steps) == 1
    # without a key, rows are appended; keys are made unique once the table has a key again
    steps = planned(S1, "ALTER TABLE s1 DROP PRIMARY KEY", new_key.replace("DROP PRIMARY KEY, ", ""), groups=groups)[1]
    assert ("UpdateState", ()) in _steps(steps)
    assert not any(isinstance(step, PurgeSurplusRows) for step in steps.steps)


def test_soft_delete_problems() -> None:
    before, _ = planned("CREATE TABLE s2 (id INT PRIMARY KEY)", rules=ColumnRules())
    older = before.state(TableName("db", "s2"))
    assert older is not None
    own = f"CREATE TABLE s4 (id INT PRIMARY KEY, {DELETED} INT)"
    draft, plan = planned(S1, "CREATE TABLE s3 (id INT)", own, "TRUNCATE TABLE s2", known=[older])
    assert {name.table: reason for name, reason in soft_delete_problems(SOFT, plan.steps, draft.key).items()} == {
        "s2": "the mirror was created before soft_delete was declared or before the table had a key; rebuild the mirror",
        "s3": "its rows have no key",
        "s4": "the table has a column _deleted of its own",
    }
    assert soft_delete_problems(ColumnRules(), plan.steps, draft.key) == {}
