"""Events as rows of `ddl_history`: the text of their changes, and the tables of an XA ROLLBACK."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, Row, SparkSession

from cdc_pipeline.dialects import decoded_tables, unified
from cdc_pipeline.dialects.decode import decode
from cdc_pipeline.dialects.decoded_tables import ddl_rows, decode_batches
from cdc_pipeline.lake.control_tables import read_rows
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mysql.ddl.statements import event_changes
from cdc_pipeline.mysql.model.schema_changes import NotSupported
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.sources.capture_files.source import CaptureFiles
from cdc_pipeline.sources.source import RunContext
from cdc_pipeline_tests.support.dialect_cases import changed, raw_records
from cdc_pipeline_tests.support.messages import Topic, canal, canal_ddl, dataworks, ddl, row, tso

_Records = list[tuple[int, int, "bytes | str | None"]]


def _row(table: str, step: int, database: str = "db") -> str:
    return canal("INSERT", table, step, [{"id": "1"}], database=database)


def _rollback(step: int = 9) -> str:
    return canal("XAROLLBACK", "", step, None, database="", sql="XA ROLLBACK X'7832',X'',1")


_COMMIT = canal("XACOMMIT", "", 5, None, database="", sql="XA COMMIT X'7831',X'',1")
_DDL = canal_ddl("ALTER TABLE t ADD COLUMN c INT", 5, table="t")
_STATEMENT = canal("DELETE", "st", 5, None, sql="DELETE FROM st")
_DEAD = "{"
_TAKEN_BACK = "NotSupported XA ROLLBACK does not undo the rows that were sent at XA PREPARE"


def _in_order(*values: str) -> _Records:
    return [(0, offset, value) for offset, value in enumerate(values)]


_EACH_EVENT = _in_order(
    _DDL,
    _row("t", 6),
    _STATEMENT,
    _COMMIT,
    dataworks("ALTER", "t", 7, sql="ADD COLUMN d INT"),
    canal_ddl("ALTER TABLE /*! x", 8, database="", kind="QUERY"),
    _DEAD,
)
_TABLES_BEFORE: dict[str, tuple[_Records, list[str]]] = {
    "one table": (_in_order(_row("a", 1), _rollback()), ["db.a"]),
    "all tables of the last minute": (
        _in_order(_row("old", 1), _row("b", 2), _row("a", 2), _row("a", 2), _row("a", 62, "other"), _rollback(62)),
        ["db.a", "db.b", "other.a"],
    ),
    "no rows before it": (_in_order(_rollback(), _row("later", 9)), ["."]),
    "other transactions in between": (
        _in_order(_row("a", 1), _COMMIT, _row("b", 2), _DDL, _row("c", 3), _rollback(), _rollback()),
        ["db.t", "db.a", "db.b", "db.c", "db.a", "db.b", "db.c"],
    ),
    "dead letters and statements between are no end": (
        _in_order(_row("a", 1), _DEAD, _STATEMENT, _rollback()),
        ["db.st", "db.a"],
    ),
    "rows of another partition": ([(1, 0, _row("a", 1)), (0, 1, _rollback())], ["db.a"]),
}


_COLUMNS = [{"ColumnName": "id", "ColumnType": "INT"}]
_FILE = {"Schema": "db", "Table": "t", "TableVersion": tso(8), "Query": "", "Type": 0, "TableColumns": _COLUMNS}
_JSON_AS_STATEMENT = _in_order(
    canal_ddl("{", 5, table="t"),
    ddl('{"a":', 6, table="t"),
    ddl(json.dumps(_FILE), 7, table="t"),
    json.dumps(_FILE),
    json.dumps(_FILE | {"TableColumns": [{"ColumnName": "id", "ColumnType": "BINARY", "ColumnPrecision": "9" * 99}]}),
    dataworks("CREATE", "t", 9, sql="{"),
)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> Iterator[dict[str, list[Row]]]:
    """Case → its events. Each case is a topic; all are in one batch."""
    topics = {
        "each event": _EACH_EVENT,
        "json": _JSON_AS_STATEMENT,
        **{name: records for name, (records, _) in _TABLES_BEFORE.items()},
    }
    frame = decode(raw_records(spark, topics)).persist()
    change_log = unified.row_changes(frame).coalesce(1).persist()
    found: dict[str, list[Row]] = {name: [] for name in topics}
    for event in ddl_rows(frame, change_log).orderBy("offset", "database", "table").collect():
        found[event["topic"]].append(event)
    yield found
    change_log.unpersist()
    frame.unpersist()


def test_each_event_says_what_it_is(rows: dict[str, list[Row]]) -> None:
    found = [
        (row["offset"], row["kind"], row["database"], row["table"], row["sql"], row["changes"])
        for row in rows["each event"]
    ]
    not_sent = "NotSupported a change was logged as a statement (binlog_format), its rows were not sent"
    added = "ALTER TABLE `t` ADD COLUMN d INT"
    assert found[:3] == [
        (0, "ddl", "db", "t", "ALTER TABLE t ADD COLUMN c INT", ["AlterTable db.t: AddColumn c int"]),
        (2, "statement", "db", "st", "DELETE FROM st", [not_sent]),
        (4, "ddl", "db", "t", added, ["AlterTable db.t: AddColumn d int"]),
    ]
    (unread,) = found[3:]
    assert unread[:5] == (5, "ddl", "", "", "ALTER TABLE /*! x")
    assert unread[5][0].startswith("NotSupported ")


def test_only_files_of_the_storage_sink_are_read_as_such(rows: dict[str, list[Row]]) -> None:
    """A message whose statement is JSON is not supported for the table that it names."""
    found = [(row["database"], row["table"], row["changes"][0][:12]) for row in rows["json"]]
    assert (
        found == [("db", "t", "NotSupported")] * 3 + [("db", "t", "CreateTable ")] + [("db", "t", "NotSupported")] * 2
    )
    assert rows["json"][3]["sql"] == "CREATE TABLE IF NOT EXISTS `db`.`t` (`id` INT)"


@pytest.mark.parametrize("kind", ["statement", "xa"])
def test_what_no_mirror_can_follow_names_its_table(kind: str) -> None:
    (change,) = event_changes(kind, "db", "st", "DELETE FROM other")
    assert isinstance(change, NotSupported)
    assert change.name == TableName("db", "st")
    (nameless,) = event_changes(kind, "", "", "")
    assert isinstance(nameless, NotSupported)
    assert nameless.name is None


@pytest.mark.parametrize("name", _TABLES_BEFORE)
def test_tables_of_an_xa_rollback(name: str, rows: dict[str, list[Row]]) -> None:
    found = rows[name]
    assert [f"{row['database']}.{row['table']}" for row in found] == _TABLES_BEFORE[name][1]
    assert {row["kind"]: row["changes"] for row in found}[unified.XA] == [_TAKEN_BACK]


_CANAL_ROWS = canal("INSERT", "t", 4, [{"id": "4"}, {"id": "5"}])
_BATCHES: dict[str, tuple[str, tuple[str, ...]]] = {
    "the first batch": (row("INSERT", "t", 1, {"id": "1"}), ("ticdc",)),
    "the same dialect": (row("INSERT", "t", 2, {"id": "2"}), ("ticdc",)),
    "a dead letter of another": (canal("INSERT", "t", 3, [{"id": "3"}], sql="x"), ("canal",)),
    "another dialect": (_CANAL_ROWS, ("canal",)),
    "unreadable": ("{", ()),
    "both": (row("INSERT", "t", 6, {"id": "6"}), ("ticdc",)),
    "an unknown one": (changed(dataworks("INSERT", "t", 7, after={"id": "7"})).decode(), ("dataworks",)),
}


def test_a_batch_expects_the_dialects_of_the_batches_before(spark: SparkSession, tmp_path: Path) -> None:
    """A message of another dialect is decoded too, and each change is written once."""
    lake, topic = Lake(spark, LakePaths(str(tmp_path / "lake"), "shop")), Topic()
    plans: list[tuple[str, ...] | None] = []

    def decoded(*args: Any) -> DataFrame:
        plans.append(args[2] if len(args) > 2 else None)
        return decode(*args)

    with patch.object(decoded_tables, "decode", decoded):
        for number, (value, _) in enumerate(_BATCHES.values()):
            topic.send(value)
            topic.write(tmp_path / "captures", f"{number}.jsonl")
            CaptureFiles(str(tmp_path / "captures")).ingest(lake, RunContext("run", lambda _: None))
            decode_batches(lake)
    assert plans == [
        *(None, ("ticdc",), ("ticdc",), None),
        *(("canal", "ticdc"), ("canal", "ticdc"), ("canal", "ticdc"), ("canal", "ticdc"), None),
    ]
    rows = lake.read("change_log").orderBy("batch_id", "row").collect()
    assert [(change["batch_id"], change["after"]["id"]) for change in rows] == [
        (1, "1"), (2, "2"), (4, "4"), (4, "5"), (6, "6"), (7, "7"),
    ]  # fmt: skip
    batches = read_rows(lake, "batches", columns=["batch_id", "records", "kinds", "dialects"])
    found = sorted((batch["batch_id"], tuple(batch["dialects"])) for batch in batches)
    assert found == list(enumerate((dialects for _, dialects in _BATCHES.values()), start=1))
    assert all(sum(dict(batch["kinds"]).values()) == batch["records"] == 1 for batch in batches)
    assert [letter["batch_id"] for letter in lake.read("dead_letters").orderBy("batch_id").collect()] == [3, 5]
    files = pa.table(DeltaTable(lake.paths.table("change_log")).get_add_actions(flatten=True))
    bounds = {name.removeprefix("min.") for name in files.column_names if name.startswith("min.")}
    assert bounds == {"batch_id", "partition", "offset", "commit_ts", "at", "es", "ts"}
    assert files["num_records"].to_pylist().count(None) == 0
