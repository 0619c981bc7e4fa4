"""Reading the cuts of a small lake, late changes, maintenance and rebuilds. The tests build on each other."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from unittest.mock import patch

import dagster as dg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import cdc_pipeline
from cdc_pipeline.checks.cuts import no_breach_result
from cdc_pipeline.errors import LakeError
from cdc_pipeline.gaps import gap_texts
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.delta_log import readable_version
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.tables.batches import recorded_notes
from cdc_pipeline.lake.upkeep import shorten_log
from cdc_pipeline.mirrors.changes.progress import cut_at, published_cut
from cdc_pipeline.mirrors.cuts import cut_execution
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import CutReport
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.operations.maintenance import LEAST_KEEP_HOURS, Maintenance
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder, RebuildReport
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.sources.raw_batches import batch_note
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.seen import Rows, seen
from cdc_pipeline_tests.support.lakes.stories import KEYLESS, change, create, delete, put, update, wide
from cdc_pipeline_tests.support.lakes.ways import MERGED, written_by
from cdc_pipeline_tests.support.messages import Topic, watermark, watermark_tso

PARTITIONS = (0, 1, 2)
_CHECKED = dg.AssetKey(["shop", "consistent_cuts"])

SLICES = (
    (
        10,
        [create("t", 1), create("bag", 1, KEYLESS), create("old", 1), create("gone", 1), put("t", 2, "1", "a")]
        + [put("t", 3, "2", "b", 2), put("bag", 4, "1", "x"), put("bag", 4, "1", "x"), put("old", 5, "1", "o")]
        + [put("gone", 6, "1", "g"), update("t", 8, ("1", "a"), ("1", "c"), 2)],
    ),
    (
        30,
        [update("t", 12, ("1", "c"), ("1", "d")), put("bag", 13, "2", "y"), put("gone", 14, "2", "h")]
        + [
            change("ALTER TABLE t ADD COLUMN n INT DEFAULT 7", 15),
            wide("INSERT", "t", 17, {"id": "3", "v": "e", "n": "9"}),
        ]
        + [
            change("RENAME TABLE old TO new", 18),
            update("new", 20, ("1", "o"), ("1", "p")),
            delete("bag", 22, "1", "x"),
        ]
        + [change("DROP TABLE gone", 25)],
    ),
)
# step → the tables at the cut of that TSO
TRUTH: dict[int, Rows] = {
    10: {"t": [(1, "c"), (2, "b")], "bag": [(1, "x"), (1, "x")], "old": [(1, "o")], "gone": [(1, "g")]},
    30: {"t": [(1, "d", 7), (2, "b", 7), (3, "e", 9)], "bag": [(1, "x"), (2, "y")], "new": [(1, "p")]},
}


class Stream:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.topic = spark, folder, Topic()
        self.paths = LakePaths(str(folder / "lake"), "shop")

    def send(self, until: int, messages: list[tuple[str, int]]) -> CutReport:
        for payload, partition in messages:
            self.topic.send(payload, partition)
        for partition in PARTITIONS:
            self.topic.send(watermark(until), partition)
        self.topic.write(self.folder / "captures", f"{until:04d}.jsonl")
        return ingest(self.spark, self.paths, self.folder / "captures")

    def read(self, step: int | None = None) -> Rows:
        return seen(
            cdc_pipeline.read_cut(self.spark, self.paths.root, "shop", None if step is None else watermark_tso(step))
        )

    def rebuilt(self) -> RebuildReport:
        maker = CutMaker(Lake(self.spark, self.paths), "rebuild", "UTC", 2, lambda line: None)
        return Rebuilder(maker).rebuild()

    def gaps(self, table: str) -> tuple[str, ...]:
        state = table_state(self.spark, self.paths.mirror(TableName("db", table)))
        assert state is not None
        return gap_texts(MirrorState.from_properties(state.properties).gaps)


@pytest.fixture(scope="module")
def stream(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    stream = Stream(spark, tmp_path_factory.mktemp("reading"))
    # a mirror that the driver rewrites has one file, which leaves nothing to join
    with written_by(MERGED):
        for until, messages in SLICES:
            stream.send(until, messages)
    return stream


@pytest.mark.parametrize(("step", "shown"), [(10, 10), (21, 10), (30, 30), (31, 30)])
def test_the_newest_cut_at_or_below_a_tso(stream: Stream, spark: SparkSession, step: int, shown: int) -> None:
    """With tables that were renamed or dropped later. The lake is only read."""
    before = sorted(Path(stream.paths.home).rglob("*"))
    tables = cdc_pipeline.read_cut(spark, stream.paths.root, "shop", watermark_tso(step))
    assert (tables.resolved_tso, seen(tables)) == (watermark_tso(shown), TRUTH[shown])
    assert sorted(Path(stream.paths.home).rglob("*")) == before


def test_the_newest_cut(stream: Stream, spark: SparkSession) -> None:
    tables = cdc_pipeline.read_cut(spark, Path(stream.paths.root), "shop")
    assert (tables.cut_id, tables.resolved_tso) == (2, watermark_tso(30))
    assert list(map(str, tables)) == ["db.bag", "db.new", "db.t"]
    assert tables["db.t"].count() == tables["db", "t"].count() == tables[TableName("db", "t")].count() == 3
    assert "db.gone" not in tables
    assert seen(tables) == TRUTH[30]


def test_unreadable_tsos_and_pipelines_are_reported(stream: Stream, spark: SparkSession) -> None:
    with pytest.raises(
        LakeError, match=f"no cut is at or below the TSO {watermark_tso(5)}: it is before the first cut"
    ):
        cdc_pipeline.read_cut(spark, stream.paths.root, "shop", watermark_tso(5))
    with pytest.raises(LakeError, match="no pipeline 'other'"):
        cdc_pipeline.read_cut(spark, stream.paths.root, "other")


def test_upkeep_changes_nothing_that_can_be_read(stream: Stream, spark: SparkSession) -> None:
    """Later tests, a rebuild among them, use the maintained lake."""
    stray = Path(stream.paths.mirror(TableName("db", "t")), "part-00000-of-a-run-that-died.snappy.parquet")
    stray.write_bytes(b"x")
    old = time.time() - (LEAST_KEEP_HOURS + 1) * 3600
    os.utime(stray, (old, old))
    said: list[str] = []
    found = {
        upkeep.table: upkeep
        for upkeep in Maintenance(tables=["mirror/*", "change_log"]).run(Lake(spark, stream.paths), said.append)
    }
    assert list(found) == ["change_log", "mirror/db.bag", "mirror/db.new", "mirror/db.t"]
    assert found["mirror/db.t"].files_removed > found["mirror/db.t"].files_added == 1
    assert [line.split(": ")[0] for line in said] == list(found)
    assert not stray.exists()
    for step in (10, 30):
        assert stream.read(step) == TRUTH[step]
    with pytest.raises(LakeError, match=r"matches no table of the lake: raw_topic_snapshot, .*mirror/db\.t"):
        Maintenance(tables=["mirror/db.gone"]).run(Lake(spark, stream.paths), said.append)


def test_a_table_may_keep_its_files_for_longer(stream: Stream, spark: SparkSession, tmp_path: Path) -> None:
    lake = _copy(stream, tmp_path)
    table = lake.paths.mirror(TableName("db", "t"))
    spark.sql(
        f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 30 days')"
    )
    strays = {days: Path(table, f"part-00000-of-{days}-days.snappy.parquet") for days in (29, 31)}
    for days, stray in strays.items():
        stray.write_bytes(b"x")
        old = time.time() - days * 86_400
        os.utime(stray, (old, old))
    Maintenance().run(lake, lambda line: None)
    assert {days: stray.exists() for days, stray in strays.items()} == {29: True, 31: False}


def _age_by_days(path: str, days: float) -> None:
    """Makes the commits of a table older, a minute apart."""
    for number, file in enumerate(sorted(Path(path, "_delta_log").glob("0*"))):
        moment = time.time() - 86_400 * days + 60 * number
        os.utime(file, (moment, moment))


def _copy(stream: Stream, folder: Path) -> Lake:
    lake = Lake(stream.spark, LakePaths(str(folder), "shop"))
    shutil.copytree(stream.paths.home, lake.paths.home)
    return lake


def _version_at(lake: Lake, step: int) -> int:
    version: int = next(row["version"] for row in cut_at(lake, watermark_tso(step)).mirrors if row["table"] == "t")
    return version


def test_cuts_before_the_oldest_version_of_a_log(stream: Stream, spark: SparkSession, tmp_path: Path) -> None:
    lake = _copy(stream, tmp_path)
    table = lake.paths.mirror(TableName("db", "t"))
    for number in range(2):  # each with a checkpoint
        spark.sql(
            f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.checkpointInterval' = '1', 'number' = '{number}')"
        )
    _age_by_days(table, 1)
    shorten_log(spark, table, 1)
    assert not Path(table, "_delta_log", f"{0:020}.json").exists()
    assert readable_version(spark, table, _version_at(lake, 10)) is None
    with pytest.raises(LakeError, match=r"^db\.t: the version of cut 1 can no longer be read, .*: read a newer cut"):
        cdc_pipeline.read_cut(spark, lake.paths.root, "shop", watermark_tso(10))
    assert seen(cdc_pipeline.read_cut(spark, lake.paths.root, "shop", watermark_tso(30))) == TRUTH[30]


def test_versions_older_than_a_week(stream: Stream, spark: SparkSession, tmp_path: Path) -> None:
    """Delta rejects them. Those that were replaced lately are read."""
    lake = _copy(stream, tmp_path)
    table = lake.paths.mirror(TableName("db", "t"))
    _age_by_days(table, 9)
    before = _version_at(lake, 10)
    assert readable_version(spark, table, before) is None
    replacement = Path(table, "_delta_log", f"{before + 1:020}.json")
    os.utime(replacement)
    assert readable_version(spark, table, before) == before
    assert seen(cdc_pipeline.read_cut(spark, lake.paths.root, "shop", watermark_tso(10))) == TRUTH[10]


def test_a_quiet_lake_that_is_maintained_each_night(stream: Stream, spark: SparkSession, tmp_path: Path) -> None:
    """OPTIMIZE is the last to commit to its mirrors, and that is older than a week, too. VACUUM does not commit."""
    lake = _copy(stream, tmp_path)
    table = lake.paths.mirror(TableName("db", "t"))
    published = _version_at(lake, 30)
    compacted = [table_state(spark, table) for _ in range(2) if Maintenance().run(lake, lambda line: None)]
    _age_by_days(table, 9)
    assert compacted[0] is not None
    assert compacted[0] == compacted[1]
    assert readable_version(spark, table, published) == compacted[0].version
    for step in (None, 30):
        tables = cdc_pipeline.read_cut(spark, lake.paths.root, "shop", None if step is None else watermark_tso(step))
        assert seen(tables) == TRUTH[30]
    maker = CutMaker(lake, "rebuild", "UTC", 2, lambda line: None)
    assert Rebuilder(maker).rebuild().cut_id is None


def test_a_rebuild_without_the_commits_of_raw(stream: Stream, spark: SparkSession, tmp_path: Path) -> None:
    """What the notes of the commits said about files and lost offsets is in `batches`."""
    lake = _copy(stream, tmp_path)
    raw = lake.paths.table("raw_topic_snapshot")
    for number in range(2):  # each with a checkpoint
        spark.sql(
            f"ALTER TABLE delta.`{raw}` SET TBLPROPERTIES ('delta.checkpointInterval' = '1', 'number' = '{number}')"
        )
    _age_by_days(raw, 1)
    shorten_log(spark, raw, 1)
    before = sorted(map(str, recorded_notes(lake).values()))
    assert len(before) == len(SLICES)
    assert batch_note(lake, 1) is None
    maker = CutMaker(lake, "rebuild", "UTC", 2, lambda line: None)
    report = Rebuilder(maker).rebuild()
    assert [table for table in report.tables if not table.equal] == []
    assert report.cut_id is None
    assert sorted(map(str, recorded_notes(lake).values())) == before


def test_a_rebuild_of_a_correct_lake_changes_nothing(stream: Stream) -> None:
    before = published_cut(Lake(stream.spark, stream.paths))
    report = stream.rebuilt()
    assert [table.table for table in report.tables if not table.equal] == []
    assert {table.table for table in report.tables} >= {"change_log", "mirror/db.t", "mirror/db.bag", "mirror/db.new"}
    assert report.cut_id is None
    assert published_cut(Lake(stream.spark, stream.paths)) == before
    assert not Path(stream.paths.home, "rebuild").exists()


def test_readers_see_whole_cuts_only_and_late_changes_are_breaches_or_redeliveries(
    stream: Stream, spark: SparkSession
) -> None:
    """Continues the stream, so it must run after the tests above."""
    fourth = wide("INSERT", "t", 35, {"id": "4", "v": "f", "n": "4"})
    late = [put("t", 2, "1", "a"), put("t", 11, "8", "never seen"), fourth, delete("bag", 36, "2", "y")]
    late.append(put("old", 16, "2", "before the RENAME"))
    with patch.object(cut_execution, "publish", side_effect=RuntimeError("stopped")), pytest.raises(RuntimeError):
        stream.send(40, late)
    mirror = spark.read.format("delta").load(stream.paths.mirror(TableName("db", "t")))
    assert mirror.count() == 4
    assert stream.read() == TRUTH[30]
    with pytest.raises(LakeError, match=r"cut \d+ is begun and not published: run the ingest first"):
        Maintenance().run(Lake(spark, stream.paths), lambda line: None)

    report = stream.send(41, [])
    assert published_cut(Lake(spark, stream.paths)).cut_id == 4  # the one that was begun, and the one up to 41
    expected = {**TRUTH[30], "t": [*TRUTH[30]["t"], (4, "f", 4)], "bag": [(1, "x")]}
    assert stream.read() == expected
    cuts = spark.read.format("delta").load(stream.paths.table("consistent_cuts")).orderBy("cut_id")
    assert [(row["late"], row["breaches"]) for row in cuts.collect()] == [(0, 0), (0, 0), (3, 2), (0, 0)]
    for name in ("t", "new"):
        (gap,) = stream.gaps(name)
        assert "1 change(s) arrived after the mirror had passed their time" in gap
    check = no_breach_result(Lake(spark, stream.paths), _CHECKED)
    assert not check.passed
    assert sorted(check.metadata) == ["db.old", "db.t"]
    assert lake_balance(Lake(spark, stream.paths)).is_balanced
    assert report.breaches == ()

    # the rebuild also restores a row that was deleted by hand, and applies the change that was late
    rows = F.col("id") == 1
    from delta.tables import DeltaTable

    DeltaTable.forPath(spark, stream.paths.mirror(TableName("db", "new"))).delete(rows)
    rebuilt = stream.rebuilt()
    assert sorted(table.table for table in rebuilt.tables if not table.equal) == ["mirror/db.new", "mirror/db.t"]
    repaired = {**expected, "t": sorted([*expected["t"], (8, "never seen", 7)])}
    repaired["new"] = expected["new"] = [*expected["new"], (2, "before the RENAME")]
    assert stream.read() == repaired
    assert stream.gaps("t") == stream.gaps("new") == ()
    assert no_breach_result(Lake(spark, stream.paths), _CHECKED).passed
    assert lake_balance(Lake(spark, stream.paths)).is_balanced
    assert stream.read(39) == TRUTH[30]  # as it was published

    # the pipeline continues
    stream.send(50, [wide("DELETE", "t", 45, {"id": "8", "v": "never seen", "n": "7"})])
    assert stream.read() == expected
    assert lake_balance(Lake(spark, stream.paths)).is_balanced


def test_chosen_tables_are_rebuilt_with_those_tied_to_them(stream: Stream, spark: SparkSession) -> None:
    """Runs after the test above. Repairs one of two wrong tables, then the other."""
    from delta.tables import DeltaTable

    late = wide("INSERT", "t", 42, {"id": "78", "v": "late again", "n": "7"})
    stream.send(60, [late, put("new", 55, "2", "q")])
    DeltaTable.forPath(spark, stream.paths.mirror(TableName("db", "new"))).delete(F.col("id") == 1)
    wrong = stream.read()
    cut = published_cut(Lake(spark, stream.paths))
    rebuilder = Rebuilder(CutMaker(Lake(spark, stream.paths), "rebuild", "UTC", 2, lambda line: None))

    def rebuilt(*patterns: str) -> tuple[dict[str, bool], int | None]:
        report = rebuilder.rebuild(patterns)
        assert not Path(stream.paths.home, "rebuild").exists()
        return {table.table: table.equal for table in report.tables}, report.cut_id

    with pytest.raises(
        LakeError, match=r"\['db.x', 't'\] matches no table; there are: db.bag, db.gone, db.new, db.old, db.t"
    ):
        rebuilt("db.x", "t")
    assert rebuilt("db.bag", "db.gone") == ({"mirror/db.bag": True}, None)
    assert published_cut(Lake(spark, stream.paths)) == cut
    assert not no_breach_result(Lake(spark, stream.paths), _CHECKED).passed

    assert rebuilt("*.t") == ({"mirror/db.t": False}, cut.cut_id + 1)
    right = {**wrong, "t": sorted([*wrong["t"], (78, "late again", 7)])}
    assert stream.read() == right
    assert stream.gaps("t") == ()
    assert no_breach_result(Lake(spark, stream.paths), _CHECKED).passed
    assert lake_balance(Lake(spark, stream.paths)).is_balanced

    # the first name of the table
    assert rebuilt("db.old") == ({"mirror/db.new": False}, cut.cut_id + 2)
    # readers of the cut never saw the row deleted by hand, because they read the published version
    assert stream.read() == right
    mirror = spark.read.format("delta").load(stream.paths.mirror(TableName("db", "new")))
    assert sorted(tuple(row)[:2] for row in mirror.collect()) == [(1, "p"), (2, "q")] == right["new"]
    report = stream.rebuilt()
    assert [table.table for table in report.tables if not table.equal] == []
    stream.send(70, [put("new", 65, "3", "r")])
    assert stream.read() == {**right, "new": [*right["new"], (3, "r")]}
    assert lake_balance(Lake(spark, stream.paths)).is_balanced
