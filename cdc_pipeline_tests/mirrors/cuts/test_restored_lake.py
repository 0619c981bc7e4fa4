"""A lake that is replaced by an earlier copy continues from there. A table that was restored with Delta's RESTORE is
refused, and each way out that the error names works."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.assets.opened_lake import open_lake
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.format import require_known_format
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import OWN_TABLES, LakePaths
from cdc_pipeline.lake.restored_tables import RestoredTableError
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.stored_plan import is_begun
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.operations.maintenance import Maintenance
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.spark.session import SparkLakehouse
from cdc_pipeline_tests.support.folders import tree
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.stories import change, create, put, update
from cdc_pipeline_tests.support.lakes.stream import Stream
from cdc_pipeline_tests.support.messages import Topic, watermark, watermark_tso

_T = TableName("db", "t")
_AFTER = [(1, "b"), (2, "c")]


@pytest.fixture(scope="module")
def two_cuts(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """The initial lake of all tests. Copy it."""
    found = Stream(spark, tmp_path_factory.mktemp("two") / "cuts")
    found.write_slice(10, create("t", 1), create("u", 1), put("t", 2, "1", "a"))
    found.run()
    found.write_slice(20, create("v", 11), update("t", 12, ("1", "a"), ("1", "b")), put("t", 13, "2", "c"), ("{", 0))
    found.run()
    return found


@pytest.fixture
def stream(two_cuts: Stream, tmp_path: Path) -> Stream:
    return two_cuts.begun_again(tmp_path / "cuts")


def _open(stream: Stream) -> None:
    """Opens the lake as each step of a run and `shop_rebuild` do."""
    context: Any = SimpleNamespace(
        run=SimpleNamespace(run_id="test"),
        log=SimpleNamespace(info=print),
        resources=SimpleNamespace(spark=SparkLakehouse()),
    )
    pipeline: Any = SimpleNamespace(
        paths=stream.paths, source=SimpleNamespace(secrets=()), spark_key="spark", stores=()
    )
    with open_lake(context, pipeline):
        pass


def _restore(stream: Stream, path: str, version: int) -> None:
    stream.spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {version}")


def _undo(stream: Stream, error: BaseException) -> None:
    """Runs the statement in the error."""
    found = re.search(r"RESTORE TABLE \S+ TO VERSION AS OF \d+", str(error))
    assert found is not None
    stream.spark.sql(found[0])


def _maker(stream: Stream) -> CutMaker:
    return CutMaker(stream.lake, "rebuild", "UTC", 2, lambda line: None)


def _assert_continues(stream: Stream) -> None:
    _open(stream)
    stream.write_slice(30, put("t", 22, "3", "d"), put("u", 23, "1", "x"))
    stream.run()
    assert (stream.rows("t"), stream.rows("u")) == ([*_AFTER, (3, "d")], [(1, "x")])
    assert published_cut(stream.lake).resolved_tso == watermark_tso(30)
    assert lake_balance(stream.lake).is_balanced


def test_each_own_table_is_refused_alone_and_its_restore_can_be_undone(stream: Stream) -> None:
    home, refused = Path(stream.paths.home), set()
    for name in OWN_TABLES:
        state = stream.lake.state(name)
        if state is None or state.version == 0:
            continue
        _restore(stream, stream.paths.table(name), 0)
        before = tree(home)
        with pytest.raises(dg.Failure) as caught:
            _open(stream)
        assert tree(home) == before
        message = str(caught.value.description)
        assert message.startswith(f"{name} was restored to an earlier version (RESTORE): the content of version ")
        assert f"or replace {home} by a copy (`cdc-pipeline docs operations restore`)" in message
        if name == "raw_topic_snapshot":
            # version 0 has no format
            with pytest.raises(RestoredTableError):
                require_known_format(stream.lake)
        stream.spark.sql(message.split("Undo the RESTORE by ")[1].split(",")[0])
        _open(stream)
        refused.add(name)
    assert refused >= {"raw_topic_snapshot", "change_log", "watermarks", "dead_letters", "ddl_history", "batches"}
    assert refused >= {"consistent_cuts", "cut_plans"}
    _assert_continues(stream)


def test_a_restored_mirror_is_refused_until_its_restore_is_undone(stream: Stream) -> None:
    path = stream.paths.mirror(_T)
    _restore(stream, path, 1)
    assert stream.rows("t") == [(1, "a")]
    with pytest.raises(RestoredTableError, match=r"^mirror/db/t was restored .* or run shop_rebuild"):
        Maintenance(tables=["mirror/*"]).run(stream.lake, lambda line: None)
    # a run that does not change the mirror passes
    stream.write_slice(25, put("u", 21, "1", "x"))
    stream.run()
    stream.write_slice(28, change("ALTER TABLE t ADD n INT", 26), put("t", 27, "3", "d"))
    before = tree(Path(path))
    with pytest.raises(RestoredTableError, match=r"^mirror/db/t was restored") as caught:
        stream.run()
    assert tree(Path(path)) == before
    assert not is_begun(stream.lake, published_cut(stream.lake))
    _undo(stream, caught.value)
    stream.run()
    stream.write_slice(30)
    stream.run()
    assert stream.rows("t") == [(1, "b", None), (2, "c", None), (3, "d", None)]
    assert lake_balance(stream.lake).is_balanced


@pytest.mark.parametrize("tables", [["db.t"], []])
def test_a_restored_mirror_is_rebuilt(stream: Stream, tables: list[str]) -> None:
    """Also while a new cut is refused, and if the RESTORE changed no rows."""
    path = stream.paths.mirror(_T)

    def rebuild() -> int | None:
        _open(stream)
        return Rebuilder(_maker(stream)).rebuild(tables).cut_id

    _restore(stream, path, 1)
    stream.write_slice(25, put("t", 22, "3", "d"))
    with pytest.raises(RestoredTableError):
        stream.run()
    assert (rebuild(), stream.rows("t")) == (3, _AFTER)
    # the newest commit of the rebuild sets properties
    _restore(stream, path, table_state(stream.spark, path).version - 1)  # type: ignore[union-attr]
    assert (rebuild(), stream.rows("t")) == (4, _AFTER)
    stream.run()
    assert stream.rows("t") == [*_AFTER, (3, "d")]
    assert lake_balance(stream.lake).is_balanced


def test_a_mirror_restored_during_a_begun_cut(stream: Stream) -> None:
    """The commits that the cut has made already would be skipped. The other tables continue."""
    stream.write_slice(30, put("t", 22, "3", "d"), change("ALTER TABLE t ADD n INT", 23), put("u", 24, "1", "x"))
    number = 0
    while stream.killed(number) and stream.rows("t") == _AFTER:
        number += 1
    assert stream.rows("t") == [*_AFTER, (3, "d")]
    path = stream.paths.mirror(_T)
    _restore(stream, path, 1)
    undone = stream.begun_again(stream.folder.parent / "undone")
    with pytest.raises(RestoredTableError, match=r"^mirror/db/t was restored"):
        stream.run()
    assert (stream.rows("t"), stream.rows("u")) == ([(1, "a")], [(1, "x")])
    assert Rebuilder(_maker(stream)).rebuild(["db.t"]).cut_id == 4
    with pytest.raises(RestoredTableError) as caught:
        undone.run()
    _undo(undone, caught.value)
    undone.run()
    for lake in (stream, undone):
        assert (lake.rows("t"), lake.rows("u")) == ([(1, "b", None), (2, "c", None), (3, "d", None)], [(1, "x")])
        assert lake_balance(lake.lake).is_balanced


def test_a_copy_continues(spark: SparkSession, tmp_path: Path) -> None:
    paths, copy = LakePaths(str(tmp_path / "lake"), "shop"), LakePaths(str(tmp_path / "copy"), "shop")
    captures, topic = tmp_path / "captures", Topic()
    slices = [
        (create("t", 1), put("t", 2, "1", "a")),
        (update("t", 12, ("1", "a"), ("1", "b")), put("t", 13, "2", "c")),
    ]
    for number, messages in enumerate(slices):
        for payload, _ in messages:
            topic.send(payload)
        topic.send(watermark(10 + 10 * number)).write(captures, f"{number}.jsonl")
        ingest(spark, paths, captures)
        if number == 0:
            shutil.copytree(paths.home, copy.home)
    assert _rows(spark, paths) == _AFTER

    # a copy from after the first cut, at another path: later records are taken in again
    assert (_rows(spark, copy), published_cut(Lake(spark, copy)).resolved_tso) == ([(1, "a")], watermark_tso(10))
    ingest(spark, copy, captures)
    assert (_rows(spark, copy), published_cut(Lake(spark, copy)).resolved_tso) == (_AFTER, watermark_tso(20))


def _rows(spark: SparkSession, paths: LakePaths) -> list[tuple[int, str]]:
    frame = spark.read.format("delta").load(paths.mirror(_T))
    return sorted((row["id"], row["v"]) for row in frame.collect())
