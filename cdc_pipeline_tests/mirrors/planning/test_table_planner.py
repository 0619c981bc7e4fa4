"""Statements about tables that the lake does not know, and about those that are held. Without Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc_pipeline.gaps import gap_texts
from cdc_pipeline.lake.tables.ddl_history import HELD
from cdc_pipeline.mirrors.changes.row_groups import RowGroup
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import DeleteRows, RenameMirror
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import CutPlan, Planner
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy, HeldTable
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import Position
from cdc_pipeline_tests.support.plans.by_hand import ddl_event, mirror_state, row_group

_T, _OTHER = TableName("db", "t"), TableName("db", "other")
_MAY_HAVE_EXISTED = (
    "CREATE TABLE IF NOT EXISTS does not tell whether the table existed before: earlier rows may be missing"
)
_NEW = "CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY)"


def _planned(
    *statements: str, dialect: str = "canal", rows: tuple[RowGroup, ...] = (), hold: str = ""
) -> tuple[CutPlan, PlanDraft]:
    settings = CutSettings("UTC", policy=DdlPolicy("apply", ((hold, "hold"),) if hold else ()))
    draft = PlanDraft(list(rows), lambda name: None, frozenset(), 1, settings)
    events = [replace(ddl_event(place, sql), dialect=dialect) for place, sql in enumerate(statements, 1)]
    return Planner(draft).plan(events), draft


def _state(draft: PlanDraft, name: TableName = _T) -> MirrorState:
    state = draft.state(name)
    assert state is not None
    return state


@pytest.mark.parametrize(
    ("statements", "dialect", "gaps"),
    [
        ((_NEW,), "canal", [_MAY_HAVE_EXISTED]),
        ((_NEW,), "dataworks", [_MAY_HAVE_EXISTED]),
        # TiCDC sends only what it created
        ((_NEW,), "ticdc", []),
        (("CREATE TABLE t (id INT PRIMARY KEY)", _NEW), "canal", []),
        ((_NEW, "TRUNCATE t"), "canal", []),
        # the stream has removed the table
        (("CREATE TABLE t (id INT)", "DROP TABLE t", _NEW), "canal", []),
        (("DROP TABLE IF EXISTS t", _NEW), "canal", []),
        (("CREATE TABLE t (id INT)", "RENAME TABLE t TO u", "CREATE TABLE IF NOT EXISTS t LIKE u"), "canal", []),
        (("CREATE TABLE s (id INT)", "CREATE TABLE IF NOT EXISTS t LIKE s"), "canal", [_MAY_HAVE_EXISTED]),
    ],
)
def test_a_table_that_may_have_existed(statements: tuple[str, ...], dialect: str, gaps: list[str]) -> None:
    _, draft = _planned(*statements, dialect=dialect)
    assert list(gap_texts(_state(draft).gaps)) == gaps


def test_a_table_like_one_that_may_have_existed_is_new() -> None:
    _, draft = _planned(_NEW, "CREATE TABLE other LIKE t")
    assert list(gap_texts(_state(draft, _OTHER).gaps)) == []


def test_an_exchange_with_a_table_without_a_mirror() -> None:
    sql = "ALTER TABLE pt EXCHANGE PARTITION p0 WITH TABLE t"
    plan, draft = _planned("CREATE TABLE t (id INT PRIMARY KEY)", sql, dialect="ticdc")
    assert list(gap_texts(_state(draft).gaps)) == ["a statement is not applied yet: see ddl_history at t/0@2"]
    no_mirror, unknown_rows = list(plan.outcomes.values())[-1].effects
    assert "db.pt has no mirror yet" in no_mirror
    assert "the rows of db.pt are unknown" in unknown_rows


def test_the_reason_of_a_refused_statement_names_no_class() -> None:
    plan, _ = _planned("CREATE TABLE t (id INT PRIMARY KEY)", "ALTER TABLE t TRUNCATE PARTITION p0")
    (effect,) = list(plan.outcomes.values())[-1].effects
    assert effect == "not applied yet: TRUNCATE PARTITION p0: the table has no known partitions"


def test_statements_that_keep_the_rows_of_a_held_table_wait_too() -> None:
    plan, draft = _planned(
        "CREATE TABLE t (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 4",
        "ALTER TABLE t TRUNCATE PARTITION p1",
        "ALTER TABLE t ADD PARTITION PARTITIONS 4",
        "CREATE TABLE other LIKE t",
        "CREATE TABLE apart (id INT)",
        dialect="ticdc",
        rows=(row_group(_T, 1),),
        hold="db.t",
    )
    statuses = [outcome.status for outcome in plan.outcomes.values()]
    assert [status == HELD for status in statuses] == [False, True, True, True, False]
    assert not [step for step in plan.steps if isinstance(step, DeleteRows)]
    assert draft.state(_OTHER) is None
    assert {held.name for held in plan.held} == {_T, _OTHER}


@pytest.mark.parametrize(
    ("statement", "tables"),
    [
        ("RENAME TABLE other TO x, t TO other, x TO t", "other t x"),
        ("FLASHBACK TABLE t TO u", "t u"),
        ("ALTER TABLE other EXCHANGE PARTITION p WITH TABLE t", "other t"),
        ("DROP TABLE other, t", "t"),
    ],
)
def test_statements_that_wait_with_a_held_table(statement: str, tables: str) -> None:
    plan, _ = _planned("CREATE TABLE t (id INT)", "CREATE TABLE other (id INT)", "DROP TABLE t", statement, hold="db.t")
    assert {name.table for name in (held.name for held in plan.held)} == set(tables.split())
    assert list(plan.outcomes.values())[-1].status == HELD
    assert not [step for step in plan.steps if isinstance(step, RenameMirror)]


def test_a_table_that_a_held_one_is_made_like_does_not_wait() -> None:
    plan, draft = _planned(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "DROP TABLE t",
        "CREATE TABLE t LIKE other",
        "ALTER TABLE other ADD INDEX (id)",
        dialect="ticdc",
        hold="db.t",
    )
    statuses = [outcome.status for outcome in plan.outcomes.values()]
    assert [status == HELD for status in statuses] == [False, False, True, True, False]
    assert {held.name for held in plan.held} == {_T}
    assert draft.state(_OTHER) is not None


def test_a_quarantined_table_is_no_reason_for_a_table_like_it() -> None:
    known = {name: mirror_state(name.table) for name in (_T, _OTHER)}
    draft = PlanDraft([], known.get, frozenset(known), 2, CutSettings("UTC"))
    broken = HeldTable(_T, Position("t", 0, 0), 1, error="a disk error")
    events = [ddl_event(1, "CREATE TABLE u LIKE t"), ddl_event(2, "ALTER TABLE t ADD INDEX (id)")]
    plan = Planner(draft, held=(broken,)).plan(events)
    assert [outcome.status == HELD for outcome in plan.outcomes.values()] == [False, True]
    assert {held.name for held in plan.held} == {_T}
    assert draft.state(TableName("db", "u")) is not None
