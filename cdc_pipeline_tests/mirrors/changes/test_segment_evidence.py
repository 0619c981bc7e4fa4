"""Where a row lies by the columns and types that it carries, between statements that came in the same moment."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from cdc_pipeline.mirrors.changes.segment_evidence import SegmentFinder
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mysql.ddl.statements import DDL_EVENT, changes_of
from cdc_pipeline.mysql.model.table import TableName

_T = TableName("db", "t")
_CREATE = "CREATE TABLE t (id INT PRIMARY KEY, a INT)"


@dataclass(frozen=True)
class Row:
    """A row with these columns lies in `segment`; `doubt` is the statement of which it is in doubt on which side it lies."""

    columns: str
    segment: int
    doubt: int | None = None
    types: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    statements: tuple[str, ...]
    rows: tuple[Row, ...]
    known: bool = True


CASES = {
    "an_added_column": Case(("ALTER TABLE t ADD COLUMN x INT",), (Row("id a", 0), Row("id a x", 1), Row("ID A X", 1))),
    "a_dropped_column": Case(("ALTER TABLE t DROP COLUMN a",), (Row("id a", 0), Row("id", 1))),
    "a_column_under_another_name": Case(
        ("ALTER TABLE t CHANGE a b BIGINT",), (Row("id a", 0), Row("id b", 1), Row("id a b", 0, 0))
    ),
    "a_column_that_came_and_went": Case(
        ("ALTER TABLE t ADD COLUMN x INT", "ALTER TABLE t DROP COLUMN x"),
        # without it a row is before both or after both: the same for the table
        (Row("id a x", 1), Row("id a", 2)),
    ),
    "a_column_there_and_back": Case(
        ("ALTER TABLE t RENAME COLUMN a TO b", "ALTER TABLE t RENAME COLUMN b TO a"),
        (Row("id b", 1), Row("id a", 0, 0)),
    ),
    "two_columns_that_change_names": Case(
        ("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a",), (Row("id a b", 0, 0),)
    ),
    "another_type": Case(
        ("ALTER TABLE t MODIFY a BIGINT",),
        (
            Row("id a", 0, types={"id": "INT", "a": "INT"}),
            Row("id a", 1, types={"id": "INT(11)", "a": "bigint(20)"}),
            # whatever its type was: a row that has the new one is as it is on both sides
            Row("id a", 1),
        ),
    ),
    "types_one_after_the_other": Case(
        ("ALTER TABLE t MODIFY a BIGINT", "ALTER TABLE t MODIFY a VARCHAR(20)", "ALTER TABLE t MODIFY a VARCHAR(30)"),
        (
            Row("id a", 0, types={"a": "int"}),
            Row("id a", 1, types={"a": "bigint"}),
            Row("id a", 2, types={"a": "varchar(20)"}),
            Row("id a", 3, types={"a": "VARCHAR(30)"}),
            Row("id a", 3, types={"a": "varchar"}),
        ),
    ),
    "labels_in_another_order": Case(
        ("ALTER TABLE t MODIFY a ENUM('y','x')",),
        (
            Row("id a", 0, types={"a": "ENUM('x','y')"}),
            Row("id a", 1, types={"a": "enum('y','x')"}),
            # the number alone says nothing
            Row("id a", 0, 0, types={"a": "enum"}),
        ),
    ),
    "a_table_that_is_made": Case((_CREATE,), (Row("id a", 1),), known=False),
    "a_table_that_is_made_again": Case(("DROP TABLE t", _CREATE), (Row("id v", 0), Row("id a", 0, 0), Row("id", 0))),
    "a_table_that_is_there": Case((_CREATE.replace("TABLE t", "TABLE IF NOT EXISTS t"),), (Row("id a", 1),)),
    "what_empties": Case(("TRUNCATE TABLE t",), (Row("id a", 0, 0),)),
    "what_empties_and_then_adds": Case(
        ("TRUNCATE TABLE t", "ALTER TABLE t ADD COLUMN x INT"), (Row("id a x", 2), Row("id a", 0, 0))
    ),
    "a_name_that_goes": Case(("RENAME TABLE t TO u",), (Row("id a", 0),)),
    "a_name_that_comes": Case(("RENAME TABLE u TO t",), (Row("id a", 1),), known=False),
    "names_in_a_circle": Case(("RENAME TABLE t TO tmp, u TO t, tmp TO u",), (Row("id a", 0, 0),)),
    "keys_and_defaults": Case(("ALTER TABLE t ADD UNIQUE (a), ALTER a SET DEFAULT 3",), (Row("id a", 1),)),
    "rows_of_partitions": Case(("ALTER TABLE t TRUNCATE PARTITION p1",), (Row("id a", 0, 0),)),
    "a_partial_image": Case(
        ("ALTER TABLE t ADD COLUMN x INT NOT NULL, ADD COLUMN y INT",), (Row("id x", 1), Row("id", 0), Row("x", 1))
    ),
}


def _events(statements: tuple[str, ...]) -> list[DdlEvent]:
    return [
        DdlEvent("t", 0, place, "db", "t", 1, False, 1, 1, sql, changes_of(DDL_EVENT, "db", "t", sql), "canal", 1)
        for place, sql in enumerate(statements)
    ]


@pytest.mark.parametrize("name", CASES)
def test_the_segment_of_a_row(name: str) -> None:
    case = CASES[name]
    finder = SegmentFinder(_T, _events(case.statements), known=case.known)
    for row in case.rows:
        found = finder.locate(0, len(case.statements), row.columns.split(), row.types)
        assert found == (row.segment, row.doubt), row


def test_what_the_stream_tells_is_not_asked() -> None:
    finder = SegmentFinder(_T, _events(("ALTER TABLE t ADD COLUMN x INT", "TRUNCATE TABLE t")), known=True)
    assert finder.locate(1, 2, ["id", "a", "x"], {}) == (1, 1)
    assert finder.locate(0, 1, ["id", "a", "x"], {}) == (1, None)
