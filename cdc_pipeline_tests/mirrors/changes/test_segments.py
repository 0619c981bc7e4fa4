"""The segment of a row by its columns, among statements with the same time."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cdc_pipeline.mirrors.changes.segments import SegmentFinder
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mysql.ddl.statements import DDL_EVENT, event_changes
from cdc_pipeline.mysql.model.table import TableName

_T = TableName("db", "t")
_CREATE = "CREATE TABLE t (id INT PRIMARY KEY, a INT)"


@dataclass(frozen=True)
class Row:
    """A row with these columns lies in `segment`. `doubt`: index of the statement whose order against it is unknown."""

    columns: str
    segment: int
    doubt: int | None = None


@dataclass(frozen=True)
class Case:
    statements: tuple[str, ...]
    rows: tuple[Row, ...]
    before: str | None = "id a"
    """The columns before the statements; "": no table."""


CASES = {
    "an_added_column": Case(("ALTER TABLE t ADD COLUMN x INT",), (Row("id a", 0), Row("id a x", 1), Row("ID A X", 1))),
    "a_dropped_column": Case(("ALTER TABLE t DROP COLUMN a",), (Row("id a", 0), Row("id", 1))),
    "a_renamed_column": Case(
        ("ALTER TABLE t CHANGE a b BIGINT",), (Row("id a", 0), Row("id b", 1), Row("id a b", 0, 0))
    ),
    "a_column_added_and_dropped": Case(
        ("ALTER TABLE t ADD COLUMN x INT", "ALTER TABLE t DROP COLUMN x"),
        # a row without it lies before both or after both, which is the same
        (Row("id a x", 1), Row("id a", 2)),
    ),
    "a_column_renamed_and_back": Case(
        ("ALTER TABLE t RENAME COLUMN a TO b", "ALTER TABLE t RENAME COLUMN b TO a"),
        (Row("id b", 1), Row("id a", 0, 0)),
    ),
    "two_columns_that_swap_names": Case(
        ("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a",), (Row("id a b", 0, 0),), before="id a b"
    ),
    "another_type": Case(("ALTER TABLE t MODIFY a BIGINT",), (Row("id a", 1),)),
    "reordered_labels": Case(("ALTER TABLE t MODIFY a ENUM('y','x')",), (Row("id a", 0, 0),)),
    "a_created_table": Case((_CREATE,), (Row("id a", 1),), before=""),
    "a_recreated_table": Case(("DROP TABLE t", _CREATE), (Row("id v", 0), Row("id a", 2)), before="id v"),
    "a_table_recreated_as_it_was": Case(("DROP TABLE t", _CREATE), (Row("id a", 0, 0),)),
    "a_table_of_unknown_columns": Case(("ALTER TABLE t ADD COLUMN x INT",), (Row("id a", 1),), before=None),
    "an_existing_table": Case((_CREATE.replace("TABLE t", "TABLE IF NOT EXISTS t"),), (Row("id a", 1),)),
    "a_truncate": Case(("TRUNCATE TABLE t",), (Row("id a", 0, 0),)),
    "a_truncate_and_an_added_column": Case(
        ("TRUNCATE TABLE t", "ALTER TABLE t ADD COLUMN x INT"), (Row("id a x", 2), Row("id a", 0, 0))
    ),
    "a_table_renamed_away": Case(("RENAME TABLE t TO u",), (Row("id a", 0),)),
    "a_table_renamed_to_this_name": Case(("RENAME TABLE u TO t",), (Row("id a", 1),), before=""),
    "tables_that_swap_names": Case(("RENAME TABLE t TO tmp, u TO t, tmp TO u",), (Row("id a", 0, 0),)),
    "keys_and_defaults": Case(("ALTER TABLE t ADD UNIQUE (a), ALTER a SET DEFAULT 3",), (Row("id a", 1),)),
    "a_truncated_table_partition": Case(("ALTER TABLE t TRUNCATE PARTITION p1",), (Row("id a", 0, 0),)),
    "a_partial_image": Case(
        ("ALTER TABLE t ADD COLUMN x INT NOT NULL, ADD COLUMN y INT",), (Row("id x", 1), Row("id", 0), Row("x", 1))
    ),
}


def _events(statements: tuple[str, ...]) -> list[DdlEvent]:
    return [
        DdlEvent("t", 0, place, "db", "t", 1, False, 1, 1, sql, event_changes(DDL_EVENT, "db", "t", sql), "canal", 1)
        for place, sql in enumerate(statements)
    ]


@pytest.mark.parametrize("name", CASES)
def test_the_segment_of_a_row(name: str) -> None:
    case = CASES[name]
    finder = SegmentFinder(
        _T, _events(case.statements), None if case.before is None else frozenset(case.before.split())
    )
    for row in case.rows:
        found = finder.locate(0, len(case.statements), row.columns.split())
        assert found == (row.segment, row.doubt), row


def test_the_position_limits_the_segments() -> None:
    finder = SegmentFinder(_T, _events(("ALTER TABLE t ADD COLUMN x INT", "TRUNCATE TABLE t")), frozenset(("id", "a")))
    assert finder.locate(1, 2, ["id", "a", "x"]) == (1, 1)
    assert finder.locate(0, 1, ["id", "a", "x"]) == (1, None)
