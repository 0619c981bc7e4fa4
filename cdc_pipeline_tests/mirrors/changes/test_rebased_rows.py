"""Rows that arrive after statements which they precede are rebased on them."""

from __future__ import annotations

import pytest

from cdc_pipeline.mirrors.changes.rebased_rows import rebase_for
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mysql.ddl.column_types import type_or_text
from cdc_pipeline.mysql.ddl.statements import DDL_EVENT, event_changes
from cdc_pipeline.mysql.model.table import TableName

_T = TableName("db", "t")

# statements → the name of the table after them, and the columns that were renamed or dropped (None)
REBASED: dict[str, tuple[tuple[str, ...], str, dict[str, str | None]]] = {
    "statements_without_effect": (("ALTER TABLE t ADD COLUMN x INT", "ALTER TABLE u DROP COLUMN a"), "t", {}),
    "a_dropped_column": (("ALTER TABLE t DROP COLUMN a",), "t", {"a": None}),
    "a_renamed_column": (("ALTER TABLE t RENAME COLUMN a TO b", "ALTER TABLE t CHANGE b c INT"), "t", {"a": "c"}),
    "a_column_dropped_by_its_new_name": (
        ("ALTER TABLE t RENAME COLUMN a TO b", "ALTER TABLE t DROP COLUMN B"),
        "t",
        {"a": None},
    ),
    "columns_that_swap_names": (
        ("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a",),
        "t",
        {"a": "b", "b": "a"},
    ),
    "a_name_reused_by_another_column": (
        ("ALTER TABLE t RENAME COLUMN a TO b", "ALTER TABLE t ADD COLUMN a INT", "ALTER TABLE t RENAME COLUMN a TO c"),
        "t",
        # the second rename is about the new column, which the row lacks
        {"a": "b"},
    ),
    "a_renamed_table": (
        ("RENAME TABLE t TO u", "ALTER TABLE u DROP COLUMN a", "ALTER TABLE t DROP b"),
        "u",
        {"a": None},
    ),
    "tables_that_swap_names": (("RENAME TABLE t TO tmp, u TO t, tmp TO u",), "u", {}),
    "an_existing_table": (("CREATE TABLE IF NOT EXISTS t (id INT)",), "t", {}),
}
SUPERSEDED = (
    ("TRUNCATE TABLE t",),
    ("RENAME TABLE t TO u", "DROP TABLE u"),
    ("DROP DATABASE db",),
    ("CREATE TABLE t (id INT)",),
)
INAPPLICABLE = (
    "ALTER TABLE t TRUNCATE PARTITION p1",
    "ALTER TABLE u EXCHANGE PARTITION p1 WITH TABLE t",
    "ALTER TABLE t MODIFY a ENUM('x')",
)


def _events(statements: tuple[str, ...]) -> list[DdlEvent]:
    return [
        DdlEvent("t", 0, place, "db", "t", 1, False, 1, 1, sql, event_changes(DDL_EVENT, "db", "t", sql), "canal", 1)
        for place, sql in enumerate(statements)
    ]


@pytest.mark.parametrize("name", REBASED)
def test_rows_follow_renames_of_their_table_and_columns(name: str) -> None:
    statements, table, columns = REBASED[name]
    found = rebase_for(_T, _events(statements))
    assert (found.name, found.superseded, found.inapplicable) == (TableName("db", table), False, [])
    assert {old: new for old, new in found.columns.items() if old != new} == columns


@pytest.mark.parametrize("statements", SUPERSEDED, ids=lambda statements: statements[-1])
def test_rows_of_emptied_tables_are_superseded(statements: tuple[str, ...]) -> None:
    assert rebase_for(_T, _events(statements)).superseded


@pytest.mark.parametrize("statement", INAPPLICABLE)
def test_statements_that_cannot_be_applied_to_one_row(statement: str) -> None:
    (event,) = _events((statement,))
    assert rebase_for(_T, [event]).inapplicable == [event]


@pytest.mark.parametrize(
    ("before", "statements", "inapplicable"),
    [
        ("int(11)", ("ALTER TABLE t MODIFY a BIGINT",), False),
        ("INT", ("ALTER TABLE t MODIFY a VARCHAR(20)",), False),
        ("bit(8)", ("ALTER TABLE t MODIFY a INT",), False),
        ("decimal(10,2)", ("ALTER TABLE t MODIFY a DECIMAL(10,1)",), False),
        ("date", ("ALTER TABLE t CHANGE a b DATETIME(3)",), False),
        ("varchar(20)", ("ALTER TABLE t MODIFY a TEXT",), False),
        ("varchar(20)", ("ALTER TABLE t MODIFY a INT",), True),
        ("decimal(10,2)", ("ALTER TABLE t MODIFY a INT",), True),
        ("float", ("ALTER TABLE t MODIFY a VARCHAR(20)",), True),
        ("enum('x','y')", ("ALTER TABLE t MODIFY a VARCHAR(20)",), True),
        ("datetime(6)", ("ALTER TABLE t MODIFY a DATE",), True),
        ("varbinary(8)", ("ALTER TABLE t MODIFY a VARCHAR(8)",), True),
        ("bit(8)", ("ALTER TABLE t MODIFY a VARCHAR(8)",), True),
        # by way of another type, and under a new name
        ("int", ("ALTER TABLE t CHANGE a b VARCHAR(20)", "ALTER TABLE t MODIFY b DATE"), True),
        ("int", ("ALTER TABLE t CHANGE a b VARCHAR(20)", "ALTER TABLE t MODIFY b TEXT"), False),
    ],
)
def test_conversions_to_another_kind_cannot_be_applied(
    before: str, statements: tuple[str, ...], inapplicable: bool
) -> None:
    events = _events(statements)
    found = rebase_for(_T, events).inapplicable_to({"a": type_or_text(before), "other": type_or_text("json")})
    assert found == ([events[-1]] if inapplicable else [])
