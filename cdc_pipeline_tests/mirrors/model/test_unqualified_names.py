"""Statements without a database in messages without one are planned. No Spark."""

from __future__ import annotations

from cdc_pipeline.dialects.message_types import MessageTypes
from cdc_pipeline.gaps import GapKind
from cdc_pipeline.mirrors.changes.row_groups import RowGroup
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.model.object_names import ObjectNames
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import Planner
from cdc_pipeline.mysql.ddl.statements import event_changes
from cdc_pipeline.mysql.model.table import TableName

OLD = TableName("db", "old_t")
CREATED = "CREATE TABLE old_t (id INT PRIMARY KEY, w INT)"
REPLACED = "CREATE OR REPLACE TABLE old_t (k INT PRIMARY KEY)"
ALTERED = "ALTER TABLE IF EXISTS old_t ADD COLUMN IF NOT EXISTS q INT"


def _event(place: int, sql: str, database: str) -> DdlEvent:
    time = place * 1000 << 18
    changes = event_changes("ddl", database, "", sql)
    return DdlEvent("t", 0, place, database, "", time, False, place * 1000, None, sql, changes, "canal")


def _rows(segment: int, *columns: str) -> RowGroup:
    types = MessageTypes(dict.fromkeys(columns, "int"))
    place = (1, "t", 0, segment)
    return RowGroup(OLD, segment, columns, columns[:1], 1, "canal", True, place, is_insert=True, types=types)


def _planned(statements: list[tuple[str, str]], *groups: RowGroup, known: tuple[TableName, ...] = ()) -> PlanDraft:
    events = ObjectNames(set(known)).resolved(
        _event(place, sql, name) for place, (sql, name) in enumerate(statements, 1)
    )
    draft = PlanDraft(groups, lambda name: None, frozenset(), 1, "UTC")
    Planner(draft).plan(events)
    return draft


def test_a_replaced_table_starts_with_its_new_columns() -> None:
    draft = _planned([(CREATED, "db"), (REPLACED, ""), (ALTERED, "")], _rows(1, "id", "w"), _rows(3, "k", "q"))
    state = draft.state(OLD)
    assert state is not None
    assert state.schema.column_names == ("k", "q")
    assert state.gaps == ()


def test_rows_with_column_names_of_the_replaced_table_are_a_gap() -> None:
    """Canal did not understand the statement and sends the old column names (canal-facts 42)."""
    draft = _planned([(CREATED, "db"), (REPLACED, ""), (ALTERED, "")], _rows(3, "id", "w"))
    state = draft.state(OLD)
    assert state is not None
    assert [(gap.kind, gap.column) for gap in state.gaps] == [
        (GapKind.UNDECLARED_COLUMN, "id"),
        (GapKind.UNDECLARED_COLUMN, "w"),
    ]


def test_a_table_name_in_two_databases_is_a_gap_on_each() -> None:
    two = [(CREATED, "db"), (CREATED, "other"), (REPLACED, "")]
    draft = _planned(two)
    for name in (OLD, TableName("other", "old_t")):
        state = draft.state(name)
        assert state is not None
        assert state.schema.column_names == ("id", "w")
        assert {gap.kind for gap in state.gaps} == {GapKind.DDL_NOT_APPLIED}
