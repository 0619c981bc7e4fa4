"""Plans of DDL on tables with masked columns. Without Spark."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cdc_pipeline.gaps import gap_texts
from cdc_pipeline.lake.tables.ddl_history import NOT_APPLIED
from cdc_pipeline.mirrors.changes.dropped_tables import EndedTable
from cdc_pipeline.mirrors.cuts.cut_ddl import CutStatements
from cdc_pipeline.mirrors.model.masks import HASH, NULL
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import ChangeColumns, CreateMirror, DdlOutcome
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import Planner
from cdc_pipeline.mirrors.planning.selection_change import SelectionChange
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules, MaskSaltError, unknown_masked_columns
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy
from cdc_pipeline.mirrors.settings.selection import Route, TableSelection
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.masks import SALT
from cdc_pipeline_tests.support.messages import tso
from cdc_pipeline_tests.support.plans.mask_plans import CASES, RULES, Rules, T, masked_event, planned

_ROUTED: Rules = (("eu.customers", (("email", HASH),)),)


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


def test_a_mirror_that_was_kept_after_its_drop_is_masked_under_its_former_name() -> None:
    before = _state(planned(T.format("a1"), rules=())[0], "a1").as_retired("9")
    draft, _ = planned(rules=(("db.a1", (("email", HASH),)),), known=(before,))
    assert dict(_state(draft, "a1__dropped_9").masks) == {"email": HASH}


def test_a_mirror_with_another_route_is_masked_under_its_new_name() -> None:
    """In the cut that renames it: the cut's rows follow."""
    before = _state(planned(T.format("a1"), rules=())[0], "a1")
    now, rules = TableSelection(routes=(Route("db.a1", "eu.customers"),)), ColumnRules(masks=_ROUTED, salt=SALT)
    draft = PlanDraft(
        (), {before.name: before}.get, frozenset({before.name}), 1, CutSettings("UTC", selection=now, columns=rules)
    )
    tables = {before.name: (before.name,)}
    change = SelectionChange.from_selections(tables, [before.name], TableSelection(), now)
    change.plan(draft, 1, now)
    state = draft.state(TableName("eu", "customers"))
    assert state is not None
    assert dict(state.masks) == {"email": HASH}


def test_another_salt_fails_before_planning() -> None:
    hashed = _state(planned(T.format("a1"))[0], "a1")
    for salt in ("", "another salt, as long"):
        with pytest.raises(MaskSaltError, match=r"mask_salt: values of db\.a1 were hashed with another") as error:
            planned(known=(hashed,), salt=salt)
        assert SALT not in str(error.value)
    rules = ColumnRules(masks=RULES, salt=SALT)
    stored = replace(rules, salt="")
    assert stored.with_salt(SALT, rules.mask_key) == rules
    with pytest.raises(MaskSaltError, match="mask_salt: it is missing"):
        stored.with_salt("", rules.mask_key)
    assert ColumnRules().with_salt("", ColumnRules(salt=SALT).mask_key) == ColumnRules()
    assert SALT not in f"{rules!r}{rules.to_json()}"


def test_a_dropped_mirror_with_another_salt_is_not_recovered() -> None:
    (created,) = planned(T.format("a1"))[1].steps
    ended = EndedTable(created.state.name, f"{tso(1)}", created.state)
    for salt, gaps in ((SALT, 0), ("another salt, as long", 1)):
        draft = PlanDraft((), {}.get, frozenset(), 1, CutSettings("UTC", columns=ColumnRules(masks=RULES, salt=salt)))
        Planner(draft, ended=lambda _: [ended]).plan([masked_event(2, "RECOVER TABLE a1")])
        state = _state(draft, "a1")
        # without rows no value is hashed
        assert (len(state.gaps), state.mask_key) == (gaps, "" if gaps else ColumnRules(salt=salt).mask_key)


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
        # a server that is not strict truncates
        ("TEXT", "VARCHAR(10)", False),
        ("LONGTEXT", "TINYTEXT", False),
        ("DATETIME", "DATETIME(3)", True),
        ("DATETIME(3)", "DATETIME", False),
        ("DATE", "DATETIME", False),
        ("ENUM('a','b')", "ENUM('b','a','c')", True),
        ("ENUM('a','b')", "ENUM('a')", False),
        ("SET('a','b')", "SET('a','c','b')", True),
        # MySQL prints the labels in the order of the definition
        ("SET('a','b')", "SET('b','a')", False),
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


def test_the_gap_of_a_late_statement_shows_no_value() -> None:
    event = masked_event(9, "ALTER TABLE a1 ADD phone2 VARCHAR(20) DEFAULT 'clear', MODIFY v INT DEFAULT 77001")
    ddl = CutStatements((), {event.position: DdlOutcome(NOT_APPLIED)}, (event,))
    ((_, gap),) = ddl.gaps()
    assert str(gap) == "DDL arrived after the mirrors had passed its commit_ts: see ddl_history at t/0@9"


def test_a_held_statement_shows_no_value() -> None:
    state = _state(planned(T.format("a1"))[0], "a1")
    settings = CutSettings("UTC", policy=DdlPolicy("hold"), columns=ColumnRules(salt=SALT))
    draft = PlanDraft((), {state.name: state}.get, frozenset({state.name}), 2, settings)
    sql = "ALTER TABLE a1 DROP v, ADD phone2 VARCHAR(20) DEFAULT 'clear'"
    (held,) = Planner(draft).plan([masked_event(9, sql)]).held
    assert str(held.gap) == "held (ddl_policy) until its statement is approved: see ddl_history at t/0@9"
    assert "clear" not in repr(held)
