"""Which computed columns a mirror has, and which a step recomputes. No Spark."""

from __future__ import annotations

import pytest

from cdc_pipeline.mirrors.changes.dropped_tables import EndedTable
from cdc_pipeline.mirrors.merge.computed_values import columns_to_recompute, drops_computed, unavailable_columns
from cdc_pipeline.mirrors.model.computed_columns import ComputedColumn, ComputedRules
from cdc_pipeline.mirrors.model.masks import HASH
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import ChangeColumns
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import CutPlan, Planner
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.masks import SALT
from cdc_pipeline_tests.support.messages import tso
from cdc_pipeline_tests.support.plans.mask_plans import masked_event

TOTAL = ComputedColumn("total", "decimal(12,2)", "Price * quantity")
NOTE = ComputedColumn("note", "string", "upper(v)")
OTHER = ComputedColumn("Total", "int", "1")
RULES: ComputedRules = (("db.a*", (TOTAL,)), ("db.*", (NOTE, OTHER)))
T = "CREATE TABLE {} (id INT PRIMARY KEY, price DECIMAL(10,2), quantity INT, v VARCHAR(9))"


def planned(
    *statements: str, rules: ComputedRules = RULES, known: tuple[MirrorState, ...] = ()
) -> tuple[PlanDraft, CutPlan]:
    there = {state.name: state for state in known}
    columns = ColumnRules(masks=(("db.h*", (("v", HASH),)),), salt=SALT, computed=rules)
    draft = PlanDraft((), there.get, frozenset(there), 1, CutSettings("UTC", columns=columns))
    return draft, Planner(draft).plan([masked_event(place, sql) for place, sql in enumerate(statements, 1)])


def _state(draft: PlanDraft, table: str) -> MirrorState:
    state = draft.state(TableName("db", table))
    assert state is not None
    return state


def _anew(step: ChangeColumns) -> list[str]:
    return [column.name for column in columns_to_recompute(step, lambda _: False)]


# name → (statements, table, its computed columns, those that the last step recomputes, those without values)
CASES: dict[str, tuple[list[str], str, list[str], list[str] | None, list[str]]] = {
    "the first pattern that names a column counts": ([T.format("a1")], "a1", ["total", "note"], None, []),
    "another table": ([T.format("b1")], "b1", ["note", "Total"], None, []),
    "a table that has the column itself": (
        ["CREATE TABLE a1 (id INT PRIMARY KEY, TOTAL INT, price INT, quantity INT, v INT)"],
        "a1",
        ["note"],
        None,
        ["total"],
    ),
    "a table without the columns": (["CREATE TABLE a1 (id INT)"], "a1", ["total", "note"], None, ["total", "note"]),
    "a column that is not spoken of": (
        [T.format("a1"), "ALTER TABLE a1 ADD w INT, MODIFY id BIGINT"],
        "a1",
        ["total", "note"],
        [],
        [],
    ),
    "a type": ([T.format("a1"), "ALTER TABLE a1 MODIFY quantity BIGINT"], "a1", ["total", "note"], ["total"], []),
    "a name that is gone": (
        [T.format("a1"), "ALTER TABLE a1 RENAME COLUMN price TO cost"],
        "a1",
        ["total", "note"],
        ["total"],
        ["total"],
    ),
    "names that change places": (
        [T.format("a1"), "ALTER TABLE a1 RENAME COLUMN v TO price, RENAME COLUMN price TO v"],
        "a1",
        ["total", "note"],
        ["total", "note"],
        [],
    ),
    "a column that is dropped": (
        [T.format("a1"), "ALTER TABLE a1 DROP COLUMN v"],
        "a1",
        ["total", "note"],
        ["note"],
        ["note"],
    ),
    "and one of its name that comes": (
        [T.format("a1"), "ALTER TABLE a1 DROP COLUMN v", "ALTER TABLE a1 ADD V INT"],
        "a1",
        ["total", "note"],
        ["note"],
        [],
    ),
    "upstream gets one of that name": ([T.format("a1"), "ALTER TABLE a1 ADD Note INT"], "a1", ["total"], [], ["note"]),
    "and loses it again": (
        [T.format("a1"), "ALTER TABLE a1 ADD Note INT", "ALTER TABLE a1 RENAME COLUMN note TO n"],
        "a1",
        ["total", "note"],
        ["note"],
        [],
    ),
    "a table that is renamed gets those of its name": (
        [T.format("b1"), "RENAME TABLE b1 TO a1"],
        "a1",
        ["note", "total"],
        ["total"],
        [],
    ),
    "a table that is renamed away keeps its own": (
        [T.format("a1"), "RENAME TABLE a1 TO elsewhere.a1"],
        "elsewhere",
        ["total", "note"],
        None,
        [],
    ),
    "a copy of a table": ([T.format("a1"), "CREATE TABLE b1 LIKE a1"], "b1", ["note", "Total"], None, []),
    "a masked column": ([T.format("h1")], "h1", ["note", "Total"], None, []),
    "a column that comes to be masked": (
        [T.format("b1"), "RENAME TABLE b1 TO h1"],
        "h1",
        ["note", "Total"],
        ["note"],
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_columns(name: str) -> None:
    statements, table, shown, anew, silent = CASES[name]
    draft, plan = planned(*statements)
    place = TableName("elsewhere", "a1") if table == "elsewhere" else TableName("db", table)
    state = draft.state(place)
    assert state is not None
    assert [column.name for column in state.computed_shown] == shown
    last = plan.steps[-1]
    assert (_anew(last) if isinstance(last, ChangeColumns) else None) == anew
    assert list(unavailable_columns(state)) == silent
    assert state.gaps == ()
    assert MirrorState.from_properties(state.properties()) == state
    names = [field.name for field in state.spark_schema()]
    assert names == [*state.schema.column_names, *shown, *state.metadata]
    assert len({name.casefold() for name in names}) == len(names)


def test_a_mirror_keeps_what_it_was_made_with() -> None:
    before = _state(planned(T.format("a1"))[0], "a1")
    draft, plan = planned("ALTER TABLE a1 ADD w INT", rules=(), known=(before,))
    assert _state(draft, "a1").computed == before.computed == (TOTAL, NOTE)
    assert planned(rules=(("db.*", (OTHER,)),), known=(before,))[1].steps == ()
    # but not those of a column that upstream's own column displaced
    (step,) = planned("ALTER TABLE a1 ADD note INT", known=(before,))[1].steps
    assert isinstance(step, ChangeColumns)
    assert drops_computed(step)
    (step,) = plan.steps
    assert isinstance(step, ChangeColumns)
    assert not drops_computed(step)


def test_what_comes_back_has_the_columns_of_its_name() -> None:
    made = _state(planned(T.format("b1"))[0], "b1")
    draft = PlanDraft((), {}.get, frozenset(), 1, CutSettings("UTC", columns=ColumnRules(computed=RULES)))
    ended = EndedTable(made.name, f"{tso(1)}", made)
    Planner(draft, ended=lambda _: [ended]).plan([masked_event(2, "FLASHBACK TABLE b1 TO a1")])
    assert _state(draft, "a1").computed == (NOTE, TOTAL)


def test_an_expression_that_cannot_be_parsed() -> None:
    with pytest.raises(ValueError, match=r"'rand\(' cannot be parsed"):
        ComputedColumn("a", "int", "rand(")
    with pytest.raises(ValueError, match=r"'x' is not a Spark SQL type"):
        ComputedColumn("a", "x", "b")
