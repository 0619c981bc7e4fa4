"""Rows that a foreign key changes below the binlog: which mirrors get a gap, in single cuts and after a rebuild."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import CutReport
from cdc_pipeline.mirrors.execution.cascades import Cascades
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.messages import Topic, canal, canal_ddl

_TYPES = {"id": "int", "p": "int", "code": "varchar(9)"}
_Row = dict[str, str | None]


class _Sender:
    """Sends the messages of several families of tables: `a_p` is referenced by `a_c`, and so on."""

    def __init__(self) -> None:
        self.topic, self.step = Topic(), 0

    def ddl(self, sql: str, table: str, kind: str = "CREATE") -> None:
        self.step += 1
        self.topic.send(canal_ddl(sql, self.step, table=table, kind=kind))

    def row(self, kind: str, table: str, row: _Row, old: _Row | None = None) -> None:
        self.step += 1
        types = {name: _TYPES[name] for name in row}
        olds = None if old is None else [old]
        self.topic.send(canal(kind, table, self.step, [row], old=olds, types=types, key=["id"]))

    def family(self, name: str, actions: str = "ON DELETE CASCADE") -> None:
        """A table with the rows 1 and 2, and one whose rows 10 and 20 reference these."""
        self.ddl(f"CREATE TABLE {name}_p (id INT PRIMARY KEY)", f"{name}_p")
        key = f"CONSTRAINT {name}_of FOREIGN KEY (p) REFERENCES {name}_p (id) {actions}"
        self.ddl(f"CREATE TABLE {name}_c (id INT PRIMARY KEY, p INT, {key})", f"{name}_c")
        for number in "12":
            self.row("INSERT", f"{name}_p", {"id": number})
            self.row("INSERT", f"{name}_c", {"id": f"{number}0", "p": number})


def _second_cut(sender: _Sender) -> None:
    row, ddl = sender.row, sender.ddl
    # MySQL before 9.6: nothing else follows
    row("DELETE", "old_p", {"id": "1"})
    # MySQL 9.6, or an application that deletes these rows itself
    row("DELETE", "new_c", {"id": "10", "p": "1"})
    row("DELETE", "new_p", {"id": "1"})
    row("UPDATE", "sent_c", {"id": "20", "p": "7"}, {"p": "2"})
    row("UPDATE", "sent_p", {"id": "7"}, {"id": "2"})
    # an UPDATE of the key, and one of another row's key with ON DELETE only
    row("UPDATE", "moved_p", {"id": "7"}, {"id": "1"})
    row("UPDATE", "kept_p", {"id": "7"}, {"id": "1"})
    # REPLACE deletes the row and inserts it again
    row("DELETE", "again_p", {"id": "1"})
    row("INSERT", "again_p", {"id": "1"})
    # so does an application that writes the other rows again, too
    row("DELETE", "all_p", {"id": "1"})
    row("INSERT", "all_p", {"id": "1"})
    row("UPDATE", "all_c", {"id": "10", "p": "1"}, {"p": "2"})
    # a tree
    row("DELETE", "tree", {"id": "1", "p": None})
    # a collation that ignores case
    row("DELETE", "text_p", {"code": "AB"})
    row("DELETE", "gone_p", {"id": "1"})
    ddl("ALTER TABLE named_p CHANGE id code VARCHAR(9) NOT NULL", "named_p", "ALTER")
    row("DELETE", "named_p", {"code": "1"})
    ddl("DROP TABLE dropped_p", "dropped_p", "ERASE")


_OF = "the binlog may lack row changes of the foreign key {0}_of to db.{0}_p ({1}): {2}"
_STALE = "rows reference a row that was deleted or has another key now"
_EXPECTED = {
    "old_c": _OF.format("old", "ON DELETE CASCADE", _STALE),
    "moved_c": _OF.format("moved", "ON UPDATE SET NULL", _STALE),
    "again_c": _OF.format("again", "ON DELETE CASCADE", _STALE),
    "tree": _OF.format("tree", "ON DELETE CASCADE", _STALE).replace("tree_p", "tree"),
    "text_c": _OF.format("text", "ON DELETE SET NULL", _STALE),
    "named_c": _OF.format("named", "ON DELETE CASCADE", _STALE),
    "dropped_c": _OF.format("dropped", "ON DELETE CASCADE", "the referenced table has no mirror"),
}


def _gaps(report: CutReport) -> Mapping[str, str]:
    return {entry.name.table: "; ".join(entry.gaps) for entry in report.mirrors if entry.gaps}


@pytest.fixture
def sender() -> _Sender:
    sender = _Sender()
    for name in ("old", "new", "again", "all", "gone", "named", "dropped"):
        sender.family(name)
    sender.family("moved", "ON UPDATE SET NULL")
    sender.family("sent", "ON DELETE CASCADE ON UPDATE CASCADE")
    sender.family("kept")
    key = "CONSTRAINT tree_of FOREIGN KEY (p) REFERENCES tree (id) ON DELETE CASCADE"
    sender.ddl(f"CREATE TABLE tree (id INT PRIMARY KEY, p INT, {key})", "tree")
    sender.row("INSERT", "tree", {"id": "1", "p": None})
    sender.row("INSERT", "tree", {"id": "2", "p": "1"})
    sender.ddl("CREATE TABLE text_p (code VARCHAR(9) PRIMARY KEY)", "text_p")
    key = "CONSTRAINT text_of FOREIGN KEY (code) REFERENCES text_p (code) ON DELETE SET NULL"
    sender.ddl(f"CREATE TABLE text_c (id INT PRIMARY KEY, code VARCHAR(9), {key})", "text_c")
    sender.row("INSERT", "text_p", {"code": "AB"})
    sender.row("INSERT", "text_c", {"id": "1", "code": "ab"})
    return sender


def test_gaps_of_cascades(sender: _Sender, spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    captures = tmp_path / "captures"
    sender.topic.write(captures, "1.jsonl")
    assert _gaps(ingest(spark, paths, captures)) == {}
    _second_cut(sender)
    sender.topic.write(captures, "2.jsonl")
    expected = {**_EXPECTED, "gone_c": _OF.format("gone", "ON DELETE CASCADE", _STALE)}
    assert _gaps(ingest(spark, paths, captures)) == expected
    # the rows of the foreign key are gone; its former parent was already deleted
    sender.ddl("TRUNCATE TABLE gone_c", "gone_c", "TRUNCATE")
    sender.topic.write(captures, "3.jsonl")
    assert _gaps(ingest(spark, paths, captures)) == _EXPECTED
    rebuilder = Rebuilder(CutMaker(Lake(spark, paths), "rebuild", "UTC", 2, lambda line: None))
    assert [table.table for table in rebuilder.rebuild().tables if not table.equal] == []
    # a rebuild of chosen tables includes those that foreign keys tie to them
    chosen = rebuilder.rebuild(["db.old_c"]).tables
    assert [(table.table, table.equal) for table in chosen] == [("mirror/db.old_c", True), ("mirror/db.old_p", True)]


def test_a_failed_lookup(
    spark: SparkSession, paths: LakePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cut goes on, and the gap says so."""
    sender = _Sender()
    sender.family("old")
    sender.row("DELETE", "old_p", {"id": "1"})
    sender.topic.write(tmp_path / "captures", "1.jsonl")

    monkeypatch.setattr(Cascades, "_has_stale_rows", Mock(side_effect=ValueError("broken")))
    failed = _OF.format("old", "ON DELETE CASCADE", "they could not be looked up (ValueError)")
    assert _gaps(ingest(spark, paths, tmp_path / "captures")) == {"old_c": failed}


def test_rows_without_metadata_columns(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    """Nothing shows which message wrote a row, so that each one that references a lost key counts."""
    sender = _Sender()
    for name in ("all", "new"):
        sender.family(name)
    sender.row("DELETE", "all_p", {"id": "1"})
    sender.row("INSERT", "all_p", {"id": "1"})
    sender.row("UPDATE", "all_c", {"id": "10", "p": "1"}, {"p": "2"})
    sender.row("DELETE", "new_c", {"id": "10", "p": "1"})
    sender.row("DELETE", "new_p", {"id": "1"})
    sender.topic.write(tmp_path / "captures", "1.jsonl")
    rules = ColumnRules(metadata=())
    expected = {"all_c": _OF.format("all", "ON DELETE CASCADE", _STALE)}
    assert _gaps(ingest(spark, paths, tmp_path / "captures", columns=rules)) == expected


def test_a_quarantined_mirror_is_not_read() -> None:
    name, unread = TableName("db", "c"), cast("Any", None)
    cascades = Cascades(unread, (), unread, "UTC", unread, unread, frozenset({name}))
    assert cascades._child(name, unread) is None
