"""Which tables a rebuild must include together."""

from __future__ import annotations

import pytest

from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.operations.rebuild_scope import tied_tables
from cdc_pipeline.mysql.ddl.statements import DDL_EVENT, event_changes
from cdc_pipeline.mysql.model.table import TableName

_KNOWN = [TableName("db", name) for name in ("a", "b", "c", "d", "e")] + [TableName("other", "a")]


def _event(sql: str, database: str = "db") -> DdlEvent:
    return DdlEvent("t", 0, 0, database, "", 1, True, 0, None, sql, event_changes(DDL_EVENT, database, "", sql))


@pytest.mark.parametrize(
    ("chosen", "statements", "expected"),
    [
        ("db.a", (), "db.a"),
        ("db.a", ("TRUNCATE TABLE a", "ALTER TABLE b ADD COLUMN n INT", "RENAME TABLE b TO c"), "db.a"),
        ("db.a", ("RENAME TABLE a TO b", "CREATE TABLE c LIKE b", "TRUNCATE TABLE d"), "db.a db.b db.c"),
        ("db.c", ("RENAME TABLE a TO b", "CREATE TABLE c LIKE b"), "db.a db.b db.c"),
        ("db.a", ("RENAME TABLE a TO x, b TO a, x TO b",), "db.a db.b db.x"),
        ("db.a", ("ALTER TABLE d EXCHANGE PARTITION p WITH TABLE a",), "db.a db.d"),
        ("db.b", ("ALTER TABLE a RENAME TO other.b", "DROP TABLE other.b, db.b"), "db.a db.b other.b"),
        ("db.a", ("CREATE TABLE b (i INT, FOREIGN KEY (i) REFERENCES a (i) ON DELETE CASCADE)",), "db.a db.b"),
        ("db.b", ("ALTER TABLE b ADD FOREIGN KEY (i) REFERENCES other.a (i) ON UPDATE SET NULL",), "db.b other.a"),
        ("db.a", ("CREATE TABLE b (i INT, FOREIGN KEY (i) REFERENCES a (i))",), "db.a"),
        ("db.a", ("FLASHBACK TABLE b TO a",), "db.a db.b"),
        ("db.e", ("DROP TABLE a, b", "CREATE TABLE e AS SELECT * FROM d"), "db.e"),
        ("other.a", ("DROP DATABASE db",), "other.a"),
        ("db.e", ("DROP DATABASE db",), "db.a db.b db.c db.d db.e"),
    ],
)
def test_ties(chosen: str, statements: tuple[str, ...], expected: str) -> None:
    found = tied_tables(map(_event, statements), _KNOWN, [TableName(*chosen.split("."))])
    assert " ".join(map(str, sorted(found))) == expected


def test_a_statement_without_a_database_may_mean_any_table_of_that_name() -> None:
    found = tied_tables([_event("TRUNCATE TABLE a", database="")], _KNOWN, [TableName("other", "a")])
    assert found == {TableName("db", "a"), TableName("other", "a")}
