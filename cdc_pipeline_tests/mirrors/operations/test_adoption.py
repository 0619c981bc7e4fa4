"""Exports as the beginning of mirrors: before and after the mirrors have passed the export, and in later rebuilds."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.cli.history import history_lines, table_history
from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.snapshot_field import SnapshotSettings
from cdc_pipeline.component.source_field import CaptureFilesSource
from cdc_pipeline.errors import LakeError
from cdc_pipeline.gaps import GapKind
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.tables.ddl_history import may_have_statements
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import published_entries
from cdc_pipeline.mirrors.cuts.reading import read_cut
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.operations.adoption import Adoption, adopt
from cdc_pipeline.mirrors.operations.loading import Loading
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mirrors.operations.retention import Retention
from cdc_pipeline.mirrors.settings.selection import Route, TableSelection
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.snapshots.export import open_export
from cdc_pipeline_tests.support.exports import true_tables, unpacked
from cdc_pipeline_tests.support.lakes.runs import mirror_differences
from cdc_pipeline_tests.support.lakes.stories import KEYED, change, create, put, update
from cdc_pipeline_tests.support.lakes.stream import Stream
from cdc_pipeline_tests.support.messages import tso, watermark

AT = 20
"""The moment of the export."""
_METADATA = """Started dump at: 2026-11-29 01:00:00
SHOW MASTER STATUS:
\tLog: tidb-binlog
\tPos: {tso}
\tGTID:

Finished dump at: 2026-11-29 01:00:01
"""


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """As Dumpling writes it: the table `a` with two rows, and the empty table `none`."""
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "metadata").write_text(_METADATA.format(tso=tso(AT)))
    for table in ("a", "none"):
        (folder / f"db.{table}-schema.sql").write_text(f"/*!40101 SET NAMES binary*/;\n{KEYED.format(table)};\n")
    (folder / "db.a.000000001.sql").write_text(
        "/*!40101 SET NAMES binary*/;\nINSERT INTO `a` VALUES\n(1,'one'),\n(2,'it\\'s \\n two');\n"
    )
    return folder


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    """The stream also has rows from before the export, which has their last state."""
    found = Stream(spark, tmp_path / "one")
    found.write_slice(10, put("a", 5, "1", "before"), put("b", 5, "1", "b"))
    found.run()
    return found


def _rebuilder(stream: Stream) -> Rebuilder:
    return Rebuilder(CutMaker(Lake(stream.spark, stream.paths), "adopt", "UTC", 2, lambda line: None))


def _adopt(stream: Stream, export: Path, **options: Any) -> Adoption:
    loading = Loading(stream.paths, "load", lambda line: None, processes=1)
    baseline = loading.load("dumpling", str(export), lambda name: True)
    return adopt(_rebuilder(stream), baseline, **options)


def _state(stream: Stream, table: str) -> MirrorState:
    path = published_cut(stream.lake).mirror_folder(TableName("db", table), stream.paths)
    state = table_state(stream.spark, path)
    assert state is not None
    return MirrorState.from_properties(state.properties)


def _states(stream: Stream) -> list[MirrorState]:
    paths = [entry.path for entry in published_entries(published_cut(stream.lake), stream.paths)]
    states = (table_state(stream.spark, path) for path in paths)
    return [MirrorState.from_properties(state.properties) for state in states if state is not None]


LATER = [update("a", 15, ("1", "before"), ("1", "in the export")), put("a", 25, "3", "after")]


def _assert_begins_with_the_export(stream: Stream) -> None:
    assert stream.rows("a") == [(1, "one"), (2, "it's \n two"), (3, "after")]
    assert (stream.rows("none"), stream.rows("b")) == ([], [(1, "b")])
    state = _state(stream, "a")
    assert (state.gaps, state.inferred, state.schema.primary_key) == ((), False, ("id",))
    assert lake_balance(stream.lake).is_balanced
    rows = stream.spark.read.format("delta").load(published_cut(stream.lake).mirror_folder(state.name, stream.paths))
    (origin,) = rows.where("id = 2").select("_commit_ts", "_topic", "_partition", "_offset").collect()
    assert (origin["_commit_ts"], origin["_topic"][:9], tuple(origin)[2:]) == (tso(AT), "snapshot:", (0, 2))


def test_an_export_that_the_mirrors_have_not_reached(stream: Stream, export: Path) -> None:
    adoption = _adopt(stream, export)
    assert ([str(table.name) for table in adoption.tables], adoption.rebuilt) == (["db.a", "db.none"], None)
    assert stream.rows("a") == [(1, "before")]
    stream.write_slice(30, *LATER)
    stream.run()
    _assert_begins_with_the_export(stream)


def test_an_export_from_before_removed_changes(stream: Stream, export: Path) -> None:
    stream.write_slice(30, *LATER)
    stream.run()
    Retention({"change_log": 0}).advance(stream.lake, "maintain", lambda line: None)
    with pytest.raises(LakeError, match=r"db\.a, db\.none: changes after the export have left the lake"):
        _adopt(stream, export)
    assert stream.rows("a") == [(1, "in the export"), (3, "after")]


@pytest.fixture
def adopted(stream: Stream, export: Path) -> Stream:
    """The mirrors had passed the export."""
    stream.write_slice(30, *LATER)
    stream.run()
    assert stream.rows("a") == [(1, "in the export"), (3, "after")]
    adoption = _adopt(stream, export)
    assert adoption.rebuilt is not None
    assert adoption.rebuilt.cut_id == 3
    assert not may_have_statements(stream.lake, 2, 4)
    return stream


def test_an_export_that_the_mirrors_have_passed(adopted: Stream, export: Path) -> None:
    _assert_begins_with_the_export(adopted)
    # again: nothing changes
    again = _adopt(adopted, export)
    assert again.rebuilt is not None
    assert again.rebuilt.cut_id is None
    _assert_begins_with_the_export(adopted)


def test_another_table_of_the_same_export(stream: Stream, export: Path) -> None:
    stream.write_slice(30, *LATER)
    stream.run()
    for names in (("db.none",), ("db.a", "db.none")):
        loading = Loading(stream.paths, "load", lambda line: None, processes=1)
        adopt(_rebuilder(stream), loading.load("dumpling", str(export), lambda name, names=names: str(name) in names))
    _assert_begins_with_the_export(stream)


def test_later_rebuilds_begin_with_the_export(adopted: Stream) -> None:
    adopted.write_slice(40, update("a", 35, ("2", "x"), ("2", "new")), create("c", 36))
    adopted.run()
    for tables in ((), ("db.a",)):
        assert _rebuilder(adopted).rebuild(tables).all_equal
    assert adopted.rows("a") == [(1, "one"), (2, "new"), (3, "after")]
    adopted.spark.sql(f"DELETE FROM delta.`{adopted.paths.mirror(TableName('db', 'a'))}` WHERE id = 1")
    assert not _rebuilder(adopted).rebuild().all_equal
    assert adopted.rows("a") == [(1, "one"), (2, "new"), (3, "after")]


def test_a_stream_that_may_have_begun_later(spark: SparkSession, tmp_path: Path, export: Path) -> None:
    stream = Stream(spark, tmp_path / "late")
    stream.write_slice(30, put("a", 25, "3", "after"))
    stream.run()
    with pytest.raises(LakeError, match="t/0, t/1 has no watermark at or before it"):
        _adopt(stream, export)
    assert stream.rows("a") == [(3, "after")]
    _adopt(stream, export, accept_gap=True)
    assert stream.rows("a") == [(1, "one"), (2, "it's \n two"), (3, "after")]
    assert [gap.detail for gap in _state(stream, "a").gaps] == [
        "the stream may lack changes after the export that the table begins with"
    ]


def test_a_changefeed_that_began_before_the_export(spark: SparkSession, tmp_path: Path, export: Path) -> None:
    stream = Stream(spark, tmp_path / "late")
    stream.write_slice(30, put("a", 25, "3", "after"))
    stream.run()
    _adopt(stream, export, changefeed_start=tso(1))
    assert _state(stream, "a").gaps == ()


@pytest.mark.parametrize("name", ["dumpling/tidb-sql", "dumpling/tidb-csv"])
def test_a_real_export_equals_its_truth(name: str, spark: SparkSession, tmp_path: Path) -> None:
    """TiDB by Dumpling, with every type at its limits: each mirror equals the table that the server had at the TSO."""
    export = unpacked(name, tmp_path)
    at = open_export("dumpling", str(export)).position.tso
    assert at is not None
    stream = Stream(spark, tmp_path / "one")
    _write_watermarks(stream, at - 1)
    stream.run()
    _adopt(stream, export)
    _write_watermarks(stream, at + 1)
    stream.run()
    letters = stream.spark.read.format("delta").load(stream.paths.table("dead_letters")).collect()
    assert [letter["reason"] for letter in letters] == []
    gaps = {str(state.name): {(gap.kind, gap.column) for gap in state.gaps} for state in _states(stream)}
    assert {name: found for name, found in gaps.items() if found} == {"snap.types": {(GapKind.FEW_DIGITS, "c_float")}}
    truth = true_tables("dumpling/expected-tidb.json.gz")
    assert {str(name) for name in published_cut(stream.lake).names} == set(truth)
    for full_name, table in truth.items():
        table_name = TableName(*(full_name.rsplit(".", 1) if full_name.startswith("a.") else full_name.split(".", 1)))
        found = mirror_differences(spark, stream.paths, table_name, table["columns"], table["rows"])
        assert found == [], "\n".join(found)


def _write_watermarks(stream: Stream, at: int) -> None:
    for partition in (0, 1):
        stream.topic.send(json.dumps({**json.loads(watermark(1)), "_tidb": {"watermarkTs": at}}), partition)
    stream.slices += 1
    stream.topic.write(stream.folder / "captures", f"{stream.slices}.jsonl")


def test_the_job(stream: Stream, export: Path) -> None:
    """As declared in a pipeline's file."""
    stream.write_slice(30, *LATER)
    source = CaptureFilesSource(type="capture_files", path=str(stream.folder / "captures"))
    snapshot = SnapshotSettings(type="dumpling", path=str(export), tables=["db.a"])
    component = CdcPipeline(name="shop", source=source, lake=stream.paths.root, snapshot=snapshot)
    with dg.DagsterInstance.ephemeral() as instance:
        for name in ("shop_ingest", "shop_snapshot", "shop_ingest"):
            result = component.build_defs().resolve_job_def(name).execute_in_process(instance=instance)
            assert result.success
            outputs = [event.step_output_data.metadata for event in result.all_events if event.is_successful_output]
            if name == "shop_snapshot":
                assert [str(output["begins"].value) for output in outputs] == ["in cut 3"]
    assert stream.rows("a") == [(1, "one"), (2, "it's \n two"), (3, "after")]
    assert TableName("db", "none") not in published_cut(stream.lake).names


def test_definitions_only(stream: Stream, export: Path) -> None:
    loading = Loading(stream.paths, "load", lambda line: None, processes=1, definitions_only=True)
    baseline = loading.load("dumpling", str(export), lambda name: True)
    adoption = adopt(_rebuilder(stream), baseline, definitions_only=True)
    assert adoption.rebuilt is not None
    assert (stream.rows("a"), stream.rows("none")) == ([(1, "before")], [])
    state = _state(stream, "a")
    assert (state.inferred, state.schema.primary_key) == (False, ("id",))
    assert [gap.detail for gap in state.gaps] == [
        "the definition is that of an export: rows from before the stream began are missing"
    ]
    stream.write_slice(30, *LATER)
    stream.run()
    assert stream.rows("a") == [(1, "in the export"), (3, "after")]
    assert _rebuilder(stream).rebuild().all_equal


def test_definitions_only_of_a_table_with_statements(stream: Stream, export: Path) -> None:
    stream.write_slice(12, change("ALTER TABLE a ADD COLUMN n INT", 11))
    stream.run()
    loading = Loading(stream.paths, "load", lambda line: None, processes=1, definitions_only=True)
    baseline = loading.load("dumpling", str(export), lambda name: True)
    with pytest.raises(LakeError, match=r"db\.a: the stream has statements about them"):
        adopt(_rebuilder(stream), baseline, definitions_only=True)


def test_a_table_in_two_exports_of_one_tso(adopted: Stream, export: Path, tmp_path: Path) -> None:
    other = shutil.copytree(export, tmp_path / "other")
    with pytest.raises(LakeError, match=r"db\.a: another export of the same TSO was adopted"):
        _adopt(adopted, other)


def test_the_history_of_an_exported_row(adopted: Stream) -> None:
    lines = history_lines(table_history(adopted.lake, "db", "a", {}, ["2"]))
    exported = [line for line in lines if "EXPORTED" in line]
    assert len(exported) == 1
    assert exported[0].endswith("after  {'id': '2', 'v': \"it's \\n two\"}")
    assert f"/0@2  commit_ts {tso(AT)}" in exported[0].replace("   ", "  ")


def test_a_cut_before_the_export(adopted: Stream) -> None:
    cut = read_cut(adopted.spark, adopted.paths.root, "shop", tso(15))
    assert cut.begin_later == {TableName("db", "a"): tso(AT), TableName("db", "none"): tso(AT)}
    assert [tuple(row)[:2] for row in cut["db.a"].collect()] == [(1, "before")]
    with pytest.raises(KeyError, match=f"db.none begins with an export of the TSO {tso(AT)}"):
        cut["db.none"]
    assert read_cut(adopted.spark, adopted.paths.root, "shop").begin_later == {}


def test_merged_tables_are_refused(stream: Stream, export: Path) -> None:
    routes = (Route("db.*", "db.all", merge=True),)
    baseline = Loading(stream.paths, "load", lambda line: None, processes=1).load(
        "dumpling", str(export), lambda _: True
    )
    maker = replace(_rebuilder(stream).maker, selection=TableSelection(routes=routes))
    with pytest.raises(LakeError, match=r"db\.a, db\.none: a table that a route merges with others cannot begin"):
        adopt(Rebuilder(maker), baseline)


def test_an_export_that_a_begun_cut_passes(stream: Stream, export: Path) -> None:
    """The run that began the cut was killed, so its plan does not have the tables of the export."""
    stream.write_slice(30, *LATER)
    assert stream.killed(0)
    _adopt(stream, export)
    stream.run()
    _assert_begins_with_the_export(stream)


def test_a_partition_without_a_watermark(spark: SparkSession, tmp_path: Path, export: Path) -> None:
    stream = Stream(spark, tmp_path / "late")
    stream.topic.send(watermark(1), 0).send(*put("a", 25, "3", "after"))
    stream.topic.write(stream.folder / "captures", "1.jsonl")
    stream.run()
    with pytest.raises(LakeError, match="t/1 has no watermark at or before it"):
        _adopt(stream, export)


def test_a_statement_at_the_very_tso_of_the_export(stream: Stream, export: Path) -> None:
    """The export has its effect. The topic `t` comes after `snapshot:` in the order of names."""
    (export / "db.a-schema.sql").write_text("CREATE TABLE `a` (`id` int PRIMARY KEY, `v` varchar(20), `n` int);\n")
    (export / "db.a.000000001.sql").write_text("INSERT INTO `a` VALUES\n(1,'one',7);\n")
    _adopt(stream, export)
    stream.write_slice(30, change("ALTER TABLE `a` ADD COLUMN `n` int", AT))
    stream.run()
    assert stream.rows("a") == [(1, "one", 7)]
    assert _state(stream, "a").gaps == ()
