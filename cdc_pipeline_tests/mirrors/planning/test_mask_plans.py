"""Plans of DDL on tables with masked columns. Without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cdc_pipeline.gaps import Gap, gap_texts
from cdc_pipeline.lake.tables.ddl_history import NOT_APPLIED
from cdc_pipeline.mirrors.changes.dropped_tables import DroppedTable
from cdc_pipeline.mirrors.cuts.cut_ddl import CutStatements
from cdc_pipeline.mirrors.model.ddl_outcome import DdlOutcome
from cdc_pipeline.mirrors.model.masks import HASH, NULL
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import ChangeColumns, CreateMirror
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import Permissions, Planner
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules, MaskSaltError, unknown_masked_columns
from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy
from cdc_pipeline.mysql.ddl.statements import event_changes
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.masks import SALT
from cdc_pipeline_tests.support.messages import tso
from cdc_pipeline_tests.support.plans.mask_plans import CASES, RULES, Rules, T, masked_event, planned

if TYPE_CHECKING:
    from collections.abc import Iterable


def _state(draft: PlanDraft, table: str) -> MirrorState:
    state = draft.state(TableName("db", table))
    assert state is not None
    return state


@pytest.mark.parametrize("name", CASES)
def test_masks_and_gaps(name: str) -> None:
    statements, table, masks, gaps = CASES[name]
    draft, _ = planned(*statements)
    state = _state(draft, table)
    assert dict(state.masks) == masks
    assert [gap[: len(start)] for gap, start in zip(gap_texts(state.gaps), gaps, strict=True)] == gaps
    stored = json.dumps(state.properties())
    assert [value for value in ("'clear'", '"clear"', '"5"', '"6"', "77001", SALT) if value in stored] == []
    assert MirrorState.from_properties(state.properties()) == state


@pytest.mark.parametrize(
    "statement", ["ADD COLUMN secret INT DEFAULT 42", "DROP COLUMN phone, ADD COLUMN phone INT DEFAULT 42"]
)
def test_default_of_an_added_masked_column_is_in_the_step_only(statement: str) -> None:
    draft, plan = planned(T.format("a1"), f"ALTER TABLE a1 {statement}")
    step = plan.steps[-1]
    assert isinstance(step, ChangeColumns)
    assert step.origins[-1].before is None
    assert step.origins[-1].after.default is not None
    assert step.origins[-1].after.default.value == "42"
    assert "42" not in json.dumps(_state(draft, "a1").properties())


def test_mirrors_of_earlier_cuts_are_masked_by_new_rules() -> None:
    before = _state(planned(T.format("a1"), rules=())[0], "a1")
    assert before.masks == ()
    draft, plan = planned(known=(before,))
    assert [type(step) for step in plan.steps] == [ChangeColumns]
    assert dict(_state(draft, "a1").masks) == {"email": HASH, "phone": NULL}
    # the next cut has nothing to do, and masks stay without the rules
    after = _state(draft, "a1")
    assert planned(known=(after,))[1].steps == ()
    assert dict(_state(planned("ALTER TABLE a1 ADD w INT", rules=(), known=(after,))[0], "a1").masks) == dict(
        after.masks
    )


def test_another_salt_fails_before_planning() -> None:
    hashed = _state(planned(T.format("a1"))[0], "a1")
    for salt in ("", "another salt, as long"):
        with pytest.raises(MaskSaltError, match=r"mask_salt: values of db\.a1 were hashed with another") as error:
            planned(known=(hashed,), salt=salt)
        assert SALT not in str(error.value)
    rules = ColumnRules(masks=RULES, salt=SALT)
    assert ColumnRules.from_plain(json.loads(json.dumps(rules.to_plain())), SALT) == rules
    with pytest.raises(MaskSaltError, match="mask_salt: it is missing"):
        ColumnRules.from_plain(rules.to_plain())
    assert ColumnRules.from_plain(ColumnRules(salt=SALT).to_plain()) == ColumnRules()
    assert SALT not in f"{rules!r}{json.dumps(rules.to_plain())}"


def test_a_dropped_mirror_with_another_salt_is_not_recovered() -> None:
    (created,) = planned(T.format("a1"))[1].steps
    ended = DroppedTable(created.state, f"{tso(1)}", "dropped")
    for salt, gaps in ((SALT, 0), ("another salt, as long", 1)):
        draft = PlanDraft((), {}.get, frozenset(), 1, "UTC", ColumnRules(masks=RULES, salt=salt))
        Planner(draft, dropped=lambda _: [ended]).plan([masked_event(2, "RECOVER TABLE a1")])
        state = _state(draft, "a1")
        assert len(state.gaps) == gaps
        assert state.mask_key == ColumnRules(salt=salt).mask_key


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("INT", "BIGINT UNSIGNED", True),
        ("INT", "DECIMAL(20,2)", True),
        ("DECIMAL(12,2)", "DECIMAL(16,4)", True),
        ("DECIMAL(12,2)", "BIGINT", False),
        ("DECIMAL(12,2)", "DECIMAL(60,30)", False),
        ("INT", "VARCHAR(20)", False),
        ("VARCHAR(10)", "TEXT", True),
        ("VARCHAR(10)", "VARCHAR(9)", False),
        ("CHAR(10)", "VARCHAR(10)", False),
        ("DATETIME", "DATETIME(3)", True),
        ("DATETIME(3)", "DATETIME", False),
        ("DATE", "DATETIME", False),
        ("ENUM('a','b')", "ENUM('b','a','c')", True),
        ("ENUM('a','b')", "ENUM('a')", False),
    ],
)
def test_types_in_which_values_have_the_same_text(old: str, new: str, same: bool) -> None:
    draft, _ = planned(f"CREATE TABLE b1 (id INT PRIMARY KEY, phone {old})", f"ALTER TABLE b1 MODIFY phone {new}")
    assert (_state(draft, "b1").gaps == ()) == same


def test_masked_columns_that_do_not_exist_are_reported() -> None:
    rules: Rules = (("db.a1", (("emial", HASH), ("Email", NULL))), ("db.*", (("other", HASH),)))
    _, plan = planned(T.format("a1"), T.format("a2"), rules=rules)
    assert unknown_masked_columns(ColumnRules(masks=rules), plan.steps) == {TableName("db", "a1"): ["emial"]}
    assert unknown_masked_columns(ColumnRules(masks=rules[1:]), plan.steps) == {}


def test_types_in_the_mirror() -> None:
    (step,) = planned(T.format("a1"))[1].steps
    assert isinstance(step, CreateMirror)
    assert {field.name: field.dataType.simpleString() for field in step.state.spark_schema()[:4]} == {
        "id": "int",
        "email": "string",
        "phone": "int",
        "v": "int",
    }
    assert _state(planned(T.format("b1"))[0], "b1").spark_schema()["phone"].dataType.simpleString() == "string"


_LATE = "ALTER TABLE a1 ADD phone2 VARCHAR(20) DEFAULT 'clear', MODIFY v INT DEFAULT 77001"


def _text(gaps: Iterable[Gap]) -> str:
    return "".join([*gap_texts(gaps), *(str(gap.as_plain()) for gap in gaps)])


@pytest.mark.parametrize("known", [True, False], ids=["masked already", "masked by its name only"])
def test_the_gap_of_a_late_statement_shows_no_masked_value(known: bool) -> None:
    """Only the gap of a mirror without masks quotes the statement."""
    table = "a1" if known else "a9"
    created = planned(T.format("a1") if known else "CREATE TABLE a9 (id INT PRIMARY KEY)")[0]
    event = replace(
        masked_event(9, _LATE.replace("a1", table)), changes=event_changes("ddl", "db", "", _LATE.replace("a1", table))
    )
    ddl = CutStatements((), {event.position: DdlOutcome(NOT_APPLIED)}, (event,))
    ((name, gap),) = ddl.late_gaps()
    assert "clear" in str(gap)
    for rules, shown in ((RULES, False), ((), not known)):
        state = (
            _state(created, table) if rules else _state(planned(f"CREATE TABLE {table} (id INT)", rules=())[0], table)
        )
        draft = PlanDraft((), {name: state}.get, frozenset({name}), 2, "UTC", ColumnRules(masks=rules, salt=SALT))
        Planner(draft, known_gaps={name: (gap,)}).plan([])
        (marked,) = _state(draft, table).gaps
        assert "DDL arrived after the mirrors had passed its commit_ts" in str(marked)
        assert ("clear" in _text([marked])) == (shown or not rules)


def test_a_held_statement_shows_no_masked_value() -> None:
    states = tuple(_state(planned(T.format(name))[0], name) for name in ("a1", "x1"))
    for state in states:
        before = {state.name: state}
        draft = PlanDraft((), before.get, frozenset(before), 2, "UTC", ColumnRules(masks=RULES, salt=SALT))
        sql = f"ALTER TABLE {state.name.table} DROP v, ADD phone2 VARCHAR(20) DEFAULT 'clear'"
        plan = Planner(draft, permissions=Permissions(DdlPolicy("hold"))).plan([masked_event(9, sql)])
        (held,) = plan.held
        assert held.sql == ""
        assert str(held.gap) == "held (ddl_policy) until the statement at t/0/9 is approved: see ddl_history"
    shown = _state(planned(T.format("a1"), rules=())[0], "a1")
    draft = PlanDraft((), {shown.name: shown}.get, frozenset({shown.name}), 2, "UTC")
    plan = Planner(draft, permissions=Permissions(DdlPolicy("hold"))).plan([masked_event(9, "DROP TABLE a1")])
    assert [held.sql for held in plan.held] == ["DROP TABLE a1"]
