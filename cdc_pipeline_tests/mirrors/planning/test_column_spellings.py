"""Columns that messages spell in another case. No Spark."""

from __future__ import annotations

from dataclasses import replace

from cdc_pipeline.dialects.message_types import MessageTypes
from cdc_pipeline.mirrors.changes.row_groups import RowGroup
from cdc_pipeline.mirrors.model.steps import ApplyRows, ChangeColumns, CreateMirror
from cdc_pipeline.mirrors.planning.inferred_schema import column_spellings
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import CutPlan, Planner
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.plans.by_hand import ddl_event, mirror_state, row_group

_T = TableName("db", "t")


def _group(segment: int, *columns: str, key: str = "") -> RowGroup:
    types = MessageTypes(dict.fromkeys(columns, "int"), {columns[-1]: "json_bytes"})
    group = replace(row_group(_T, segment), columns=columns, key_names=(key or columns[0],), is_insert=True)
    return replace(group, types=types)


def _plan(groups: list[RowGroup], *statements: str) -> CutPlan:
    draft = PlanDraft(groups, lambda name: None, frozenset(), 1, CutSettings("UTC"))
    return Planner(draft).plan(ddl_event(place, sql) for place, sql in enumerate(statements, 1))


def _applied(plan: CutPlan) -> list[ApplyRows]:
    return [step for step in plan.steps if isinstance(step, ApplyRows)]


def test_rows_are_merged_by_the_columns_of_the_definition() -> None:
    created = "CREATE TABLE t (Id INT PRIMARY KEY, State INT)"
    plan = _plan([_group(1, "id", "STATE"), _group(2, "Id", "state", "Note")], created, "ALTER TABLE t ADD NOTE INT")
    first, second = _applied(plan)
    assert first.spellings == (("STATE", "State"), ("id", "Id"))
    assert first.encodings == (("ticdc", {"State": "json_bytes"}),)
    assert second.spellings == (("Note", "NOTE"), ("state", "State"))
    assert second.state.schema.column_names == ("Id", "State", "NOTE")
    assert [*first.state.gaps, *second.state.gaps, *first.absent, *second.absent] == []


def test_back_ticks_that_canal_copies_from_the_definition() -> None:
    created = "CREATE TABLE t (`i``d` INT PRIMARY KEY, `a``b` INT DEFAULT 7)"
    (applied,) = _applied(_plan([replace(_group(1, "i``d", "A``B"), dialect="canal")], created))
    assert applied.spellings == (("A``B", "a`b"), ("i``d", "i`d"))
    assert applied.state.schema.column_names == ("i`d", "a`b")
    assert [*applied.state.gaps, *applied.absent] == []
    # a column that has two of them
    (applied,) = _applied(_plan([_group(1, "id", "a``b")], "CREATE TABLE t (id INT PRIMARY KEY, `a````b` INT)"))
    assert applied.spellings == ()
    # columns that differ in their number only
    created = "CREATE TABLE t (id INT PRIMARY KEY, `a``b` INT, `a````b` INT)"
    (applied,) = _applied(_plan([replace(_group(1, "id", "a``b", "a````b"), dialect="canal")], created))
    assert applied.spellings == (("a````b", "a``b"), ("a``b", "a`b"))
    # TiCDC sends them as they are
    (applied,) = _applied(_plan([_group(1, "id", "a`b", "a``b")], created))
    assert applied.spellings == ()


def test_the_encodings_of_columns_that_some_rows_lack() -> None:
    """A partial image does not name the encoding of a column that it does not have."""
    partial = replace(_group(1, "id"), types=MessageTypes({"id": "int"}))
    (applied,) = _applied(_plan([_group(1, "id", "j"), partial], "CREATE TABLE t (id INT PRIMARY KEY, j JSON)"))
    assert applied.encodings == (("ticdc", {"j": "json_bytes"}),)


def test_a_table_without_a_definition_has_each_column_once() -> None:
    plan = _plan([_group(0, "Id", "v", key="ID"), _group(0, "ID", "V", "w")])
    assert not [step for step in plan.steps if isinstance(step, ChangeColumns)]
    (created,) = [step for step in plan.steps if isinstance(step, CreateMirror)]
    assert created.state.schema.column_names == ("Id", "v", "w")
    assert created.state.schema.primary_key == ("Id",)


def test_no_spellings_if_all_names_are_equal() -> None:
    assert column_spellings([row_group(TableName("db", "t"), 0)], mirror_state("t")) == {}
