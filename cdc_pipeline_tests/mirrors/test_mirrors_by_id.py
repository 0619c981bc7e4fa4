"""Lakes in which mirrors do not move, as on object stores: renames, drops and their undoing are commits of properties."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry, published_entries
from cdc_pipeline.mirrors.cuts.reading import read_cut
from cdc_pipeline.mirrors.model.state import DROPPED_BY
from cdc_pipeline.mirrors.operations.maintenance import Maintenance
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline_tests.support.lakes.stories import change, create, put
from cdc_pipeline_tests.support.lakes.stream import Stream

A, B, C = ([(1, name)] for name in "abc")


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    """The tables a and b are renamed, dropped, and made again in the second cut."""
    found = Stream(spark, tmp_path / "one", scheme="file:")
    found.write_slice(2, create("a", 1), put("a", 2, "1", "a"), create("b", 1), put("b", 2, "1", "b"))
    found.run()
    found.write_slice(
        10,
        change("RENAME TABLE a TO x, b TO a, x TO b", 5),
        change("DROP TABLE a", 6),
        create("a", 7),
        put("a", 8, "1", "c"),
    )
    return found


def _entries(stream: Stream) -> dict[str, MirrorEntry]:
    cut = published_cut(Lake(stream.spark, stream.paths))
    return {entry.name.table: entry for entry in published_entries(cut, stream.paths)}


def _files(stream: Stream) -> set[Path]:
    """The data files of all mirrors."""
    return set((stream.folder / "lake" / "shop" / "mirrors").rglob("*.parquet"))


def test_a_rename_and_a_drop_move_no_files(stream: Stream) -> None:
    before, files = _entries(stream), _files(stream)
    stream.run()
    after = _entries(stream)
    assert after["b"].mirror_id == before["a"].mirror_id
    assert after["b"].path == before["a"].path
    assert after["a"].mirror_id not in {entry.mirror_id for entry in before.values()}
    assert (stream.rows("a"), stream.rows("b")) == (C, A)
    assert files < _files(stream)
    home = stream.folder / "lake" / "shop"
    assert not {"mirror", "dropped", ".moves"}.intersection(path.name for path in home.iterdir())
    dropped = table_state(stream.spark, before["b"].path)
    assert dropped is not None
    assert dropped.properties[DROPPED_BY]

    # the cut before shows the tables under the names that they had then
    then = read_cut(stream.spark, stream.paths.root, "shop", published_cut(stream.lake).resolved_tso - 1)  # type: ignore[operator]
    assert {str(name): [row["v"] for row in rows.collect()] for name, rows in then.items()} == {
        "db.a": ["a"],
        "db.b": ["b"],
    }


@pytest.mark.parametrize("statement", ["RECOVER TABLE a", "FLASHBACK TABLE a TO back"])
def test_a_dropped_table_comes_back(stream: Stream, statement: str) -> None:
    dropped = _entries(stream)["b"]
    stream.run()
    stream.write_slice(20, change("RENAME TABLE a TO other", 11), change(statement, 12))
    stream.run()
    name = statement.split()[-1]
    assert (stream.rows(name), stream.rows("other")) == (B, C)
    entry = _entries(stream)[name]
    assert (entry.mirror_id, entry.path, entry.gaps) == (dropped.mirror_id, dropped.path, ())
    stream.write_slice(
        30, put(name, 22, "2", "d"), change(f"DROP TABLE {name}", 24), change(f"RECOVER TABLE {name}", 26)
    )
    stream.run()
    assert stream.rows(name) == [*B, (2, "d")]


def test_kills_before_each_commit(stream: Stream, tmp_path: Path) -> None:
    number = 0
    while (copy := stream.begun_again(tmp_path / f"killed-{number}")).killed(number):
        copy.run()
        assert (copy.rows("a"), copy.rows("b"), len(_entries(copy))) == (C, A, 2), number
        number += 1
    assert number > 5


def test_a_rebuild_finds_equal_mirrors_and_replaces_damaged_ones(stream: Stream) -> None:
    stream.run()
    lake, said = Lake(stream.spark, stream.paths), list[str]()
    before = _entries(stream)
    rebuilder = Rebuilder(CutMaker(lake, "rebuild", "UTC", 2, said.append))
    assert rebuilder.rebuild().all_equal
    assert _entries(stream) == before
    stream.spark.sql(f"DELETE FROM delta.`{before['b'].path}`")
    rebuilt = rebuilder.rebuild(["db.b"])
    assert [table.table for table in rebuilt.tables if not table.equal] == ["mirror/db.b"]
    after = _entries(stream)
    assert (stream.rows("b"), after["b"].path, after["a"]) == (A, before["b"].path, before["a"])


def test_maintenance_names_a_mirror_by_its_table(stream: Stream) -> None:
    stream.run()
    done = Maintenance(["mirror/db.*"]).run(Lake(stream.spark, stream.paths), lambda line: None)
    assert [table.table for table in done] == ["mirror/db.a", "mirror/db.b"]
