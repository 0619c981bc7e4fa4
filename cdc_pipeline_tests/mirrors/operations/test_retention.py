"""Batches that leave the lake: rebuilds begin with a kept cut, and no record enters twice."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import table_folders
from cdc_pipeline.lake.tables.kept_cuts import REMOVED_FROM, kept_cuts, removed_batches
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.operations.letter_choice import DeadLetterChoice
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mirrors.operations.release import Releaser
from cdc_pipeline.mirrors.operations.retention import Retention
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.stories import KEYLESS, change, create, delete, put, update
from cdc_pipeline_tests.support.lakes.stream import Stream

NOW = Retention(dict.fromkeys(REMOVED_FROM, 0))
"""Keeps a cut and removes what it has at once."""


def _rebuilder(stream: Stream) -> Rebuilder:
    return Rebuilder(CutMaker(Lake(stream.spark, stream.paths), "rebuild", "UTC", 2, lambda line: None))


def _batches(stream: Stream, table: str) -> list[int]:
    frame = stream.spark.read.format("delta").load(stream.paths.table(table))
    return sorted(row["batch_id"] for row in frame.select("batch_id").distinct().collect())


def _advance(stream: Stream, retention: Retention = NOW) -> list[str]:
    said: list[str] = []
    retention.advance(Lake(stream.spark, stream.paths), "keep", said.append)
    return said


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    """Three batches: the changes of the third are pending. Spark reads the control tables: for delta-rs, `%` is special."""
    found = Stream(spark, tmp_path / "100%")
    rows = [put("a", 5, "1", "one"), put("a", 5, "2", "two"), put("k", 5, "1", "x"), put("k", 6, "1", "x")]
    found.write_slice(10, create("a", 1), create("k", 1, KEYLESS), *rows)
    found.run()
    found.write_slice(20, update("a", 15, ("1", "one"), ("1", "uno")), create("r", 12), put("r", 13, "1", "r"))
    found.run()
    found.write_slice(20, put("a", 25, "3", "pending"))
    found.run()
    return found


def _go_on(stream: Stream) -> None:
    later = [
        change("RENAME TABLE r TO s", 31),
        put("s", 32, "2", "s"),
        delete("a", 33, "2", "two"),
        put("k", 34, "1", "x"),
    ]
    stream.write_slice(40, *later)
    stream.run()


def _assert_whole(stream: Stream) -> None:
    assert stream.rows("a") == [(1, "uno"), (3, "pending")]
    assert stream.rows("k") == [(1, "x")] * 3
    assert stream.rows("s") == [(1, "r"), (2, "s")]
    assert lake_balance(stream.lake).is_balanced


def test_rebuilds_begin_with_the_kept_cut(stream: Stream) -> None:
    said = _advance(stream)
    assert said[0] == "cut 2 is kept: 3 mirrors"
    assert [_batches(stream, table) for table in REMOVED_FROM] == [[3], [3]]
    _go_on(stream)
    _assert_whole(stream)
    for tables in ((), ("db.a",), ("db.s",), ("db.k",)):
        report = _rebuilder(stream).rebuild(tables)
        assert report.all_equal, report
    statements = stream.spark.read.format("delta").load(stream.paths.table("ddl_history"))
    assert statements.where("status <> 'applied'").count() == 0


def test_a_mirror_that_was_changed_is_repaired(stream: Stream) -> None:
    _advance(stream)
    _go_on(stream)
    path = published_cut(stream.lake).mirror_folder(TableName("db", "a"), stream.paths)
    stream.spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")
    assert not _rebuilder(stream).rebuild().all_equal
    _assert_whole(stream)
    _go_on_and_compare(stream)


def _go_on_and_compare(stream: Stream) -> None:
    stream.write_slice(50, put("a", 45, "9", "nine"))
    stream.run()
    assert stream.rows("a") == [(1, "uno"), (3, "pending"), (9, "nine")]
    assert lake_balance(stream.lake).is_balanced
    assert _rebuilder(stream).rebuild().all_equal


def test_a_dead_letter_of_a_removed_batch(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path / "one")
    stream.write_slice(10, create("a", 1), ("{", 0))
    stream.run()
    _advance(stream)
    _go_on(stream)
    with pytest.raises(LakeError, match=r"t/0@1 cannot be released: rebuilds begin with a kept cut behind its batch"):
        Releaser(_rebuilder(stream)).release(DeadLetterChoice(rules=("*",)))


def test_no_cut_is_kept_before_a_rebuild_has_applied_late_changes(stream: Stream) -> None:
    stream.write_slice(30, put("a", 14, "8", "late"))
    stream.run()
    assert _advance(stream) == [
        "no cut is kept, and no batch is removed, while tables are held or a rebuild would apply late changes: db.a"
    ]
    _rebuilder(stream).rebuild(("db.a",))
    assert "is kept" in _advance(stream)[0]


def test_a_file_that_is_read_anew_does_not_enter_twice(stream: Stream) -> None:
    _advance(stream)
    captures = stream.folder / "captures"
    shutil.copy(captures / "1.jsonl", captures / "copy.jsonl")
    with (captures / "2.jsonl").open("a") as file:
        file.write((captures / "1.jsonl").read_text())
    _go_on(stream)
    _assert_whole(stream)


def test_cuts_and_batches_by_age(stream: Stream) -> None:
    """A cut is kept each period. When it is old enough, what it has is removed, and the kept cut before it."""
    retention = Retention({"raw_topic_snapshot": 1, "change_log": 3})
    begin = datetime.now(timezone.utc)

    def advance(days: int) -> list[str]:
        said: list[str] = []
        retention.advance(stream.lake, "keep", said.append, begin + timedelta(days=days, minutes=10))
        return said

    assert advance(0) == ["cut 2 is kept: 3 mirrors"]
    assert advance(0) == []
    _go_on(stream)
    assert advance(2) == [
        "cut 3 is kept: 3 mirrors",
        "raw_topic_snapshot: batches up to 2 are removed; a rebuild begins with cut 2",
    ]
    assert [removed_batches(stream.lake, table) for table in REMOVED_FROM] == [(2, 2), (0, 0)]
    assert "change_log: batches up to 4 are removed; a rebuild begins with cut 3" in advance(4)
    assert [kept.cut_id for kept in kept_cuts(stream.lake)] == [2, 3, 3]
    kept_folders = table_folders(stream.spark, f"{stream.paths.home}/kept_mirrors")
    assert len(kept_folders) == len(published_cut(stream.lake).mirrors)
    _go_on_and_compare(stream)
