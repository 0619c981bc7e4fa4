"""The metadata `ddl` of `consistent_cuts`, and the texts of columns."""

from __future__ import annotations

import dagster as dg

from cdc_pipeline.assets.metadata import COLUMN_TEXTS, MOST_STATEMENTS, STATEMENTS, statements_metadata
from cdc_pipeline.dialects.unified import CHANGE_COLUMNS, DDL_COLUMNS, DEAD_LETTER_COLUMNS
from cdc_pipeline.mirrors.cuts.cut_ddl import reported_statements
from cdc_pipeline.mirrors.cuts.cut_report import ReportedStatement
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.model.steps import DdlOutcome
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import Position
from cdc_pipeline.sources.records import RECORD

_DDL_RESULTS = ("changes", "status", "effect", "cut_id", "tables")
_WATERMARK_COLUMNS = ("watermark_ts", "watermark_time")


def test_statements_of_a_cut_are_shown_without_their_values() -> None:
    event = DdlEvent("t", 0, 5, "a", "b", 1, True, 1, None, "ALTER TABLE b ADD c TEXT DEFAULT 'secret'", ())
    outcomes = {
        Position("t", 0, 4): DdlOutcome("not applied yet", ["not applied yet: it arrived late"]),
        Position("t", 0, 5): DdlOutcome("applied", ["altered a.b"]),
        Position("t", 0, 6): DdlOutcome("held", ["a.b waits"]),
        Position("t", 0, 8): DdlOutcome("no effect", []),
        Position("t", 0, 9): DdlOutcome("duplicate", []),
    }
    assert [(found.status, found.statement) for found in reported_statements([event], outcomes)] == [
        ("not applied yet", ""),
        ("applied", "ALTER TABLE b ADD c TEXT DEFAULT '…'"),
        ("held", ""),
    ]


def test_the_first_statements_are_listed() -> None:
    tables = (TableName("a", "b"), TableName("a", "c"))
    statements = [
        ReportedStatement("applied", tables, "DROP TABLE b, c", "dropped", Position("t", 0, number))
        for number in range(MOST_STATEMENTS + 1)
    ]
    shown = statements_metadata(statements)[STATEMENTS]
    assert len(shown.records) == MOST_STATEMENTS
    assert shown.records[0] == dg.TableRecord(
        {
            "status": "applied",
            "tables": "a.b, a.c",
            "statement": "DROP TABLE b, c",
            "effect": "dropped",
            "position": "t/0@0",
        }
    )
    assert statements_metadata([]) == {}


def test_every_column_of_the_own_tables_has_a_text() -> None:
    columns = {*RECORD.names, *CHANGE_COLUMNS, *DDL_COLUMNS, *_DDL_RESULTS, *_WATERMARK_COLUMNS, *DEAD_LETTER_COLUMNS}
    assert set(COLUMN_TEXTS) == columns
