"""The metadata `ddl` of `consistent_cuts`, the table of mirrors that the UI shows, and the texts of columns."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import dagster as dg

from cdc_pipeline.assets.metadata import (
    COLUMN_TEXTS,
    MOST_MIRRORS,
    MOST_STATEMENTS,
    STATEMENTS,
    overview,
    statements_metadata,
)
from cdc_pipeline.dialects.unified import CHANGE_COLUMNS, DDL_COLUMNS, DEAD_LETTER_COLUMNS
from cdc_pipeline.mirrors.changes.progress import StreamProgress
from cdc_pipeline.mirrors.cuts.cut_ddl import reported_statements
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, MirrorEntry, ReportedStatement, TableCounts
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.model.steps import DdlOutcome
from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import Position
from cdc_pipeline.sources.records import RECORD
from cdc_pipeline_tests.support.messages import tso

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


_RESOLVED = tso(100)
_NOW = datetime.fromtimestamp((_RESOLVED >> 18) / 1000, timezone.utc) + timedelta(seconds=30)
_STREAMS = StreamProgress(1, has_tsos=True, resolved_tso=_RESOLVED, held_by=None, without_watermark=())


def _entry(table: str, rows: int = 1, *gaps: str) -> MirrorEntry:
    return MirrorEntry(TableName("db", table), table, f"/lake/{table}", 1, rows, 2, gaps)


def _held(table: str, error: str = "") -> HeldTable:
    return HeldTable(TableName("db", table), Position("t", 0, 7), tso(90), 3, error)


def _rows(report: CutReport) -> list[dict[str, object]]:
    return [dict(record.data) for record in overview(report, _NOW).records]


def test_mirrors_that_need_attention_come_first() -> None:
    mirrors = (_entry("a"), _entry("b", 5), _entry("c", 2, "a gap", "another"), _entry("d", 4, "held"), _entry("e"))
    changed = {TableName("db", "b"): TableCounts(changes=9)}
    held = (_held("d"), _held("e", "it failed"))
    rows = _rows(CutReport(True, 3, _RESOLVED, _STREAMS, mirrors, changed, held=held))
    assert [row["mirror"] for row in rows] == ["db.d", "db.e", "db.c", "db.b", "db.a"]
    assert [row["held"] for row in rows] == ["since t/0@7", "quarantined", "", "", ""]
    assert [row["lag_seconds"] for row in rows] == [40.0, 40.0, 30.0, 30.0, 30.0]
    assert [(row["rows"], row["changes"], row["gaps"]) for row in rows[2:4]] == [(2, 0, 2), (5, 9, 0)]


def test_without_tsos_there_is_no_lag_and_many_mirrors_are_cut_off() -> None:
    streams = StreamProgress(1, has_tsos=False, resolved_tso=None, held_by=None, without_watermark=())
    mirrors = tuple(_entry(f"t{number:03}") for number in range(MOST_MIRRORS + 1))
    rows = _rows(CutReport(True, 3, None, streams, mirrors, held=(_held("t000"),)))
    assert len(rows) == MOST_MIRRORS
    assert {row["lag_seconds"] for row in rows} == {""}
