"""A rebuild that died before it published: the next one publishes what it had replaced."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

import cdc_pipeline
from cdc_pipeline.errors import TransientError
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.restored_tables import RestoredTableError
from cdc_pipeline.lake.tables.ddl_history import APPLIED, NOT_APPLIED
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import published_entries
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.operations import mirror_replacer, rebuild
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.seen import Rows, seen
from cdc_pipeline_tests.support.lakes.stories import KEYLESS, change, create, put
from cdc_pipeline_tests.support.lakes.stream import Stream


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    stream = Stream(spark, tmp_path / "one")
    stream.write_slice(10, create("t", 1), create("bag", 1, KEYLESS), put("t", 5, "1", "a"), put("bag", 5, "1", "x"))
    stream.run()
    return stream


def _rebuilt(stream: Stream, patterns: Sequence[str]) -> tuple[list[str], int | None]:
    """The tables that differed, and the published cut."""
    maker = CutMaker(Lake(stream.spark, stream.paths), "rebuild", "UTC", 2, lambda _: None)
    report = Rebuilder(maker).rebuild(patterns)
    return [table.table for table in report.tables if not table.equal], report.cut_id


def _published(stream: Stream) -> Rows:
    return seen(cdc_pipeline.read_cut(stream.spark, stream.paths.root, "shop"))


def _gaps(stream: Stream, table: str) -> list[str]:
    lake = Lake(stream.spark, stream.paths)
    entries = published_entries(published_cut(lake), lake.paths)
    return [text for entry in entries if entry.name.table == table for text in entry.gaps]


@pytest.mark.parametrize("patterns", [(), ("db.t",)])
def test_replaced_mirrors_are_published_by_the_next_rebuild(stream: Stream, patterns: Sequence[str]) -> None:
    path = stream.paths.mirror(TableName("db", "t"))
    assert _rebuilt(stream, patterns) == ([], None)
    # a commit of another program, with equal rows
    stream.spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('of.the' = 'test')")
    assert _rebuilt(stream, patterns) == ([], 2)
    # the same number of rows, and no gap
    DeltaTable.forPath(stream.spark, path).update("id = 1", {"v": "'by hand'"})
    stream.write_slice(20, put("t", 15, "2", "b"))
    stream.run()
    assert _published(stream)["t"] == [(1, "by hand"), (2, "b")]
    with patch.object(rebuild, "publish", side_effect=RuntimeError("stopped")), pytest.raises(RuntimeError):
        _rebuilt(stream, patterns)
    assert _published(stream)["t"] == [(1, "by hand"), (2, "b")]
    assert _rebuilt(stream, patterns) == ([], 4)
    assert _published(stream)["t"] == [(1, "a"), (2, "b")]
    assert _rebuilt(stream, patterns) == ([], None)


def test_cuts_that_do_not_balance_are_counted_again(stream: Stream) -> None:
    lake = Lake(stream.spark, stream.paths)
    DeltaTable.forPath(stream.spark, stream.paths.table("consistent_cuts")).update(set={"changes": "changes + 1"})
    assert not lake_balance(lake).is_balanced
    assert _rebuilt(stream, ()) == ([], 2)
    assert lake_balance(lake).is_balanced
    assert _rebuilt(stream, ()) == ([], None)


@pytest.mark.parametrize("patterns", [(), ("db.t",)])
def test_the_lake_has_changed_meanwhile(stream: Stream, patterns: Sequence[str]) -> None:
    """Without a lock, as in an object store: a newer cut is not overwritten."""
    path = stream.paths.mirror(TableName("db", "t"))
    DeltaTable.forPath(stream.spark, path).update("id = 1", {"v": "'by hand'"})
    maker = CutMaker(Lake(stream.spark, stream.paths), "rebuild", "UTC", 2, lambda _: None)
    with Rebuilder(maker).rebuild_in_scratch(patterns) as rebuilt:
        stream.write_slice(20, put("t", 15, "2", "b"))
        stream.run()
        with pytest.raises(TransientError, match="another run has written since the rebuild began"):
            Rebuilder(maker).replace_differing(rebuilt)
    assert _published(stream)["t"] == [(1, "by hand"), (2, "b")]
    assert _rebuilt(stream, patterns) == (["mirror/db.t"], 3)
    assert _published(stream)["t"] == [(1, "a"), (2, "b")]


def test_a_mirror_that_a_rebuild_began_to_create_has_a_gap(stream: Stream) -> None:
    """A cut may follow before the rebuild is repeated."""
    stream.write_slice(20, create("late", 3), put("late", 5, "1", "a"))
    stream.run()
    assert "late" not in _published(stream)
    _killed_while_creating(stream, "db.late")
    stream.write_slice(30, put("late", 25, "2", "b"))
    stream.run()
    assert _published(stream)["late"] == [(2, "b")]

    assert _gaps(stream, "late") == ["a rebuild that creates the mirror has not finished: run it again"]
    assert _rebuilt(stream, ("db.late",)) == (["mirror/db.late"], 4)
    assert (_published(stream)["late"], _gaps(stream, "late")) == ([(1, "a"), (2, "b")], [])


def test_a_rebuild_brings_the_rows_of_a_table_that_came_back_without_them(stream: Stream) -> None:
    """A mirror that was dropped is moved back by the cut itself."""
    stream.write_slice(20, change("TRUNCATE TABLE t", 15), put("t", 16, "2", "b"), change("DROP TABLE bag", 17))
    stream.run()
    stream.write_slice(
        30, change("FLASHBACK TABLE t TO u", 22), change("RECOVER TABLE bag", 23), put("u", 25, "3", "c")
    )
    stream.run()
    assert _published(stream) == {"t": [(2, "b")], "u": [(3, "c")], "bag": [(1, "x")]}
    assert _gaps(stream, "u") == [
        "RECOVER or FLASHBACK brought the table back without its rows: they were truncated; a rebuild brings them, unless "
        "the table uses soft_delete: see ddl_history at t/0@6"
    ]
    assert _rebuilt(stream, ("db.u",))[0] == ["mirror/db.u"]
    assert _published(stream) == {"t": [(2, "b")], "u": [(1, "a"), (3, "c")], "bag": [(1, "x")]}
    assert _gaps(stream, "u") == []


def test_no_cut_follows_a_rebuild_that_began_to_create_a_published_mirror(stream: Stream) -> None:
    shutil.rmtree(stream.paths.mirror(TableName("db", "t")))
    _killed_while_creating(stream, "db.t")
    stream.write_slice(20, put("t", 15, "2", "b"))
    with pytest.raises(RestoredTableError, match=r"the lake lacks mirror/db\.t \(version 1\)"):
        stream.run()
    assert _rebuilt(stream, ("db.t",)) == (["mirror/db.t"], 2)
    stream.run()
    assert _published(stream)["t"] == [(1, "a"), (2, "b")]


def _killed_while_creating(stream: Stream, table: str) -> None:
    with (
        patch.object(mirror_replacer, "overwrite_once", side_effect=RuntimeError("killed")),
        pytest.raises(RuntimeError),
    ):
        _rebuilt(stream, (table,))


def test_what_only_a_rebuild_applies_is_recorded(stream: Stream) -> None:
    """A statement that was late, and a late row whose value does not fit its type."""
    stream.write_slice(20, put("t", 15, "2", "b"))
    stream.run()
    stream.write_slice(30, change("ALTER TABLE t ADD COLUMN n INT", 12), put("bag", 13, "no number", "y"))
    stream.run()
    history, letters = (stream.paths.table(name) for name in ("ddl_history", "dead_letters"))
    late = stream.spark.read.format("delta").load(history).where("sql LIKE 'ALTER%'")
    assert [row["status"] for row in late.collect()] == [NOT_APPLIED]
    assert _rebuilt(stream, ("db.t", "db.bag"))[1] is not None
    late = stream.spark.read.format("delta").load(history).where("sql LIKE 'ALTER%'")
    assert [row["status"] for row in late.collect()] == [APPLIED]
    found = stream.spark.read.format("delta").load(letters).select("rule", "table").collect()
    assert [tuple(row) for row in found] == [("value_has_type", "bag")]
    assert lake_balance(Lake(stream.spark, stream.paths)).is_balanced
    # once
    _rebuilt(stream, ())
    assert stream.spark.read.format("delta").load(letters).count() == 1
