"""A lake that is restored to an earlier point continues from there, after a copy or after Delta's RESTORE of all tables. If
tables are at different points, the error names them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import functions as F

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import set_committed_versions
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts import restored_lake
from cdc_pipeline.mirrors.cuts.restored_lake import accept_restore
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.folders import tree
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.stories import change, create, put, update
from cdc_pipeline_tests.support.messages import Topic, tso, watermark

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import SparkSession


def _rows(spark: SparkSession, paths: LakePaths) -> list[tuple[int, str]]:
    frame = spark.read.format("delta").load(paths.mirror(TableName("db", "t")))
    return sorted((row["id"], row["v"]) for row in frame.collect())


@dataclass
class Told:
    """A lake that takes in one slice of a story after another."""

    spark: SparkSession
    folder: Path
    topic: Topic = field(default_factory=Topic)
    slices: int = 0

    @property
    def paths(self) -> LakePaths:
        return LakePaths(str(self.folder / "lake"), "shop")

    def tell(self, *messages: tuple[str, int]) -> datetime:
        """Makes one cut of the slice. Returns a time after it."""
        for payload, _ in messages:
            self.topic.send(payload)
        self.topic.send(watermark(10 + 10 * self.slices)).write(self.folder / "captures", f"{self.slices}.jsonl")
        self.slices += 1
        self.ingest()
        return datetime.now(timezone.utc)

    def ingest(self) -> None:
        ingest(self.spark, self.paths, self.folder / "captures")

    def taken_back(self) -> list[str]:
        said: list[str] = []
        accept_restore(Lake(self.spark, self.paths), said.append)
        return said

    def rows(self) -> list[tuple[int, str]]:
        return _rows(self.spark, self.paths)

    def tables(self) -> list[str]:
        logs = Path(self.paths.home).rglob("_delta_log")
        return sorted(str(log.parent.relative_to(self.paths.home)) for log in logs)

    def restore(self, table: str, to: str) -> None:
        self.spark.sql(f"RESTORE TABLE delta.`{Path(self.paths.home) / table}` TO {to}")

    def restore_all(self, moment: datetime, *, by_version: bool, only: Collection[str] = ()) -> None:
        for table in only or self.tables():
            history = DeltaTable.forPath(self.spark, str(Path(self.paths.home) / table)).history()
            then, newest = history.agg(
                F.max(F.when(F.col("timestamp") <= F.lit(moment), F.col("version"))), F.max("version")
            ).collect()[0]
            if by_version:
                self.restore(table, f"VERSION AS OF {then}")
            elif then < newest:  # Delta refuses a time after a table's newest commit
                self.restore(table, f"TIMESTAMP AS OF '{moment:%Y-%m-%d %H:%M:%S.%f}'")


_FIRST = (create("t", 1), put("t", 2, "1", "a"))
_SECOND = (update("t", 12, ("1", "a"), ("1", "b")), put("t", 13, "2", "c"))
_THIRD = (put("t", 22, "3", "d"),)


@pytest.fixture
def told(spark: SparkSession, tmp_path: Path) -> Told:
    return Told(spark, tmp_path)


def test_a_lake_with_all_tables_restored_continues(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """First by version, with the reset interrupted twice; then by time."""
    moment = told.tell(*_FIRST)
    told.tell(*_SECOND)
    told.tell(*_THIRD)
    whole = told.rows()
    told.restore_all(moment, by_version=True)
    assert told.rows() == [(1, "a")]

    calls = 0

    def stopping(*args: Any) -> None:
        nonlocal calls
        calls += 1
        set_committed_versions(*args)
        if calls in (1, 4):
            raise InterruptedError

    with monkeypatch.context() as patched:
        patched.setattr(restored_lake, "set_committed_versions", stopping)
        for _ in range(2):
            with pytest.raises(InterruptedError):
                told.taken_back()
        assert told.taken_back()[-1] == "the lake is restored to cut 1: the pipeline continues from there"
    # raw snapshot, change log, watermarks, batches, plans, the mirror, cuts
    assert calls >= 7
    assert told.taken_back() == []
    assert published_cut(Lake(told.spark, told.paths)).resolved_tso == tso(10)
    told.ingest()
    assert (told.rows(), published_cut(Lake(told.spark, told.paths)).resolved_tso) == (whole, tso(30))
    assert lake_balance(Lake(told.spark, told.paths)).is_balanced
    raw = told.spark.read.format("delta").load(told.paths.table("raw_topic_snapshot"))
    assert raw.count() == raw.select("topic", "partition", "offset").distinct().count() == 8

    # by time, to a point after the first one; raw and decoded tables may stay, the new cut reads them
    moment = told.tell(put("t", 32, "4", "e"))
    told.tell(put("t", 42, "5", "f"))
    told.restore_all(moment, by_version=False, only=("consistent_cuts", "mirror/db/t"))
    assert told.rows() == [*whole, (4, "e")]
    told.taken_back()
    told.ingest()
    assert (told.rows(), published_cut(Lake(told.spark, told.paths)).resolved_tso) == (
        [*whole, (4, "e"), (5, "f")],
        tso(50),
    )
    assert lake_balance(Lake(told.spark, told.paths)).is_balanced


def test_tables_at_different_points_are_named_and_nothing_changes(told: Told) -> None:
    told.tell(*_FIRST)
    told.tell(create("u", 11), *_SECOND)

    def refused() -> str:
        before = tree(Path(told.paths.home))
        with pytest.raises(LakeError) as caught:
            told.taken_back()
        assert tree(Path(told.paths.home)) == before
        return str(caught.value)

    for table in ("consistent_cuts", "cut_plans"):
        told.restore(table, "VERSION AS OF 0")
    words = refused()
    assert "mirror/db/t has changes of cut 2: RESTORE it to version 1" in words
    assert "mirror/db/u did not exist at the cut: move its folder out of the lake" in words
    # the decoded statements may stay, but not the outcomes that the cut stored
    assert "ddl_history has changes of cut 2: RESTORE it to version 2" in words
    told.restore("ddl_history", "VERSION AS OF 2")
    shutil.move(told.paths.mirror(TableName("db", "u")), told.folder / "u")
    told.restore("mirror/db/t", "VERSION AS OF 0")
    restored = "is restored to version 0, but other tables depend on later versions: RESTORE it to version"
    assert f"mirror/db/t {restored} 1" in refused()
    told.restore("mirror/db/t", "VERSION AS OF 1")
    told.restore("raw_topic_snapshot", "VERSION AS OF 0")
    words = refused()
    assert f"raw_topic_snapshot {restored} 2" in words
    assert "mirror/" not in words
    told.restore("raw_topic_snapshot", "VERSION AS OF 2")  # the one between has the lake's format
    told.taken_back()
    told.ingest()
    assert told.rows() == [(1, "b"), (2, "c")]
    mirror = told.spark.read.format("delta").load(told.paths.mirror(TableName("db", "u")))
    assert [name for name in mirror.columns if not name.startswith("_")] == ["id", "v"]


def test_a_mirror_moved_by_a_later_statement_is_named(told: Told) -> None:
    told.tell(*_FIRST)
    told.tell(change("RENAME TABLE `t` TO `t2`", 12))
    told.restore("consistent_cuts", "VERSION AS OF 0")
    with pytest.raises(LakeError, match=r"the mirror db\.t is not at its path of the cut"):
        told.taken_back()


def test_a_copy_continues_and_single_restored_tables_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    paths, copy = LakePaths(str(tmp_path / "lake"), "shop"), LakePaths(str(tmp_path / "copy"), "shop")
    captures, topic = tmp_path / "captures", Topic()
    told = [(create("t", 1), put("t", 2, "1", "a")), (update("t", 12, ("1", "a"), ("1", "b")), put("t", 13, "2", "c"))]
    for number, messages in enumerate(told):
        for payload, _ in messages:
            topic.send(payload)
        topic.send(watermark(10 + 10 * number)).write(captures, f"{number}.jsonl")
        ingest(spark, paths, captures)
        if number == 0:
            shutil.copytree(paths.home, copy.home)
    after = [(1, "b"), (2, "c")]
    assert _rows(spark, paths) == after

    # a copy from after the first cut, at another path: later records are taken in again
    assert (_rows(spark, copy), published_cut(Lake(spark, copy)).resolved_tso) == ([(1, "a")], tso(10))
    ingest(spark, copy, captures)
    assert (_rows(spark, copy), published_cut(Lake(spark, copy)).resolved_tso) == (after, tso(20))

    # Delta would skip the commits of the second cut, so the mirror would never get them
    for table in ("consistent_cuts", "batches", "mirror/db/t"):
        version = 1 if table == "mirror/db/t" else 0
        spark.sql(f"RESTORE TABLE delta.`{Path(paths.home) / table}` TO VERSION AS OF {version}")
    assert _rows(spark, paths) == [(1, "a")]
    with pytest.raises(LakeError, match="ends with cut 1, but cut 2 was committed: the table was restored"):
        ingest(spark, paths, captures)
