"""Statements without a database in messages without one are planned. No Spark."""

from __future__ import annotations

from collections.abc import Iterable

from cdc_pipeline.dialects.message_types import MessageTypes
from cdc_pipeline.gaps import GapKind
from cdc_pipeline.mirrors.changes.row_groups import RowGroup
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.model.upstream_tables import qualified_events
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import Planner
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mysql.ddl.statements import event_changes
from cdc_pipeline.mysql.model.change_names import folded
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


def _qualified(events: Iterable[DdlEvent], known: Iterable[TableName]) -> list[DdlEvent]:
    return qualified_events(events, lambda: known, folded)


def _planned(statements: list[tuple[str, str]], *groups: RowGroup, known: tuple[TableName, ...] = ()) -> PlanDraft:
    events = _qualified([_event(place, sql, name) for place, (sql, name) in enumerate(statements, 1)], known)
    draft = PlanDraft(groups, lambda name: None, frozenset(), 1, CutSettings("UTC"))
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


def test_a_table_created_in_an_unknown_database_is_not_the_known_one() -> None:
    """The known table still exists, so the statement is about another database, or the stream lacks a DROP: a gap."""
    draft = _planned([(CREATED, "db"), ("CREATE TABLE old_t (k INT PRIMARY KEY)", "")])
    state = draft.state(OLD)
    assert state is not None
    assert state.schema.column_names == ("id", "w")
    assert [gap.kind for gap in state.gaps] == [GapKind.DDL_NOT_APPLIED]


def _names(*statements: tuple[str, str]) -> list[list[str]]:
    """For each statement the text of its changes, after the tables `db.old_t` and `db.src`."""
    known = {OLD, TableName("db", "src")}
    events = [_event(place, sql, database) for place, (sql, database) in enumerate(statements, 1)]
    return [[change.description() for change in event.changes] for event in _qualified(events, known)]


def test_a_qualified_name_gives_the_database_of_the_message_so_others_are_of_the_session() -> None:
    """The encoder takes the message's database from `other.n`; `src` and `old_t` are in the session's."""
    assert _names(
        ("CREATE TABLE other.n LIKE src", "other"),
        ("ALTER TABLE old_t RENAME TO other.old_t", "other"),
        ("RENAME TABLE db.src TO other.src, other.old_t TO kept", "other"),
    ) == [
        ["CreateTableLike other.n like db.src"],
        ["AlterTable db.old_t: RenameTo other.old_t"],
        ["RenameTable db.src to other.src", "RenameTable other.old_t to other.kept"],
    ]


def test_an_unqualified_name_of_several_databases_is_a_gap() -> None:
    draft = _planned(
        [(CREATED, "db"), (CREATED, "other"), ("ALTER TABLE third.t EXCHANGE PARTITION p WITH TABLE old_t", "third")]
    )
    for name in (OLD, TableName("other", "old_t")):
        state = draft.state(name)
        assert state is not None
        assert [gap.kind for gap in state.gaps] == [GapKind.DDL_NOT_APPLIED]


def test_names_of_one_statement_are_of_one_database() -> None:
    """Only `db` has both tables. A name that the statement itself created before is no evidence."""
    known = (OLD, TableName("db", "src"), TableName("other", "src"))
    swapped = "RENAME TABLE old_t TO tmp, src TO old_t, tmp TO src"
    (event,) = _qualified([_event(1, swapped, "")], known)
    assert [change.description() for change in event.changes] == [
        "RenameTable db.old_t to db.tmp",
        "RenameTable db.src to db.old_t",
        "RenameTable db.tmp to db.src",
    ]
