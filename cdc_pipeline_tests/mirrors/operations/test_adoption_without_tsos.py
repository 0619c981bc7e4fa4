"""Exports without a TSO, of MySQL and MariaDB: the stream brings the changes from the start of the export on again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.errors import LakeError, SourceError
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.operations.adoption import adopt
from cdc_pipeline.mirrors.operations.loading import Loading
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.snapshots.export import open_export
from cdc_pipeline.snapshots.position import ExportTimes
from cdc_pipeline_tests.support.exports import true_tables, unpacked
from cdc_pipeline_tests.support.lakes.runs import mirror_differences
from cdc_pipeline_tests.support.lakes.stories import KEYED, KEYLESS
from cdc_pipeline_tests.support.lakes.stream import Stream
from cdc_pipeline_tests.support.messages import EPOCH_MS, canal, canal_ddl, dataworks

Sent = tuple[str, int]
# in seconds of the story: the export ran from 200 to 210, and its rows are those of second 206
TIMES = ExportTimes(EPOCH_MS + 200_000, EPOCH_MS + 210_000)
_SEQUENCE = 1_620_457_642_589_000_000
_METADATA = """Started dump at: 2026-11-29 01:00:00
SHOW MASTER STATUS:
\tLog: binlog.000007
\tPos: 1524
\tGTID:

Finished dump at: 2026-11-29 01:00:10
"""
_ROWS = {
    "a": (KEYED, "(1,'x'),(2,'two'),(3,'three')"),
    "k": (KEYLESS, "(1,'k')"),
    "q": (KEYLESS, "(1,'q')"),
    "s": ("CREATE TABLE `{}` (`id` INT PRIMARY KEY,`v` VARCHAR(20),`n` INT)", "(1,'s',7)"),
}


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """As Dumpling writes it for MySQL."""
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "metadata").write_text(_METADATA)
    for table, (create, rows) in _ROWS.items():
        (folder / f"db.{table}-schema.sql").write_text(f"/*!40101 SET NAMES binary*/;\n{create.format(table)};\n")
        (folder / f"db.{table}.000000001.sql").write_text(
            f"/*!40101 SET NAMES binary*/;\nINSERT INTO `{table}` VALUES\n{rows};\n"
        )
    return folder


class Sender:
    """A Canal of one partition."""

    def __init__(self) -> None:
        self.batch = 0

    def row(self, kind: str, table: str, step: int, key: str, value: str, old: str | None = None, **more: str) -> Sent:
        self.batch += 1
        types = {"id": "int", "v": "varchar", **dict.fromkeys(more, "int")}
        before = None if old is None else [{"v": old}]
        names = [] if table in ("k", "q") else ["id"]
        data = [{"id": key, "v": value, **more}]
        return canal(kind, table, step, data, old=before, types=types, key=names, batch=self.batch), 0  # type: ignore[arg-type]

    def ddl(self, sql: str, step: int, table: str) -> Sent:
        self.batch += 1
        return json.dumps({**json.loads(canal_ddl(sql, step, table=table)), "id": self.batch}), 0


def _send(stream: Stream, *messages: Sent) -> None:
    for payload, partition in messages:
        stream.topic.send(payload, partition)
    stream.slices += 1
    stream.topic.write(stream.folder / "captures", f"{stream.slices}.jsonl")
    stream.run()


def _rebuilder(stream: Stream, time_zone: str = "UTC") -> Rebuilder:
    return Rebuilder(CutMaker(Lake(stream.spark, stream.paths), "adopt", time_zone, 2, lambda line: None))


def _adopt(stream: Stream, export: Path, kind: Any = "dumpling", time_zone: str = "UTC", **options: Any) -> None:
    loading = Loading(stream.paths, "load", lambda line: None, processes=1)
    baseline = loading.load(kind, str(export), lambda name: True, TIMES)
    assert adopt(_rebuilder(stream, time_zone), baseline, **options).rebuilt is not None


def _gaps(stream: Stream, table: str) -> list[Gap]:
    path = published_cut(stream.lake).mirror_folder(TableName("db", table), stream.paths)
    state = table_state(stream.spark, path)
    assert state is not None
    return list(MirrorState.from_properties(state.properties).gaps)


def _before(canal: Sender) -> list[Sent]:
    rows = [canal.row("INSERT", table, 10, "9", "gone") for table in ("a", "k", "q", "s")]
    return [*rows, canal.row("DELETE", "a", 11, "9", "gone")]


def _during(canal: Sender) -> list[Sent]:
    return [
        canal.row("UPDATE", "a", 205, "1", "x", old="one"),
        canal.row("INSERT", "k", 205, "1", "k"),
        canal.ddl("ALTER TABLE s ADD COLUMN n INT", 205, "s"),
        canal.row("DELETE", "a", 207, "2", "two"),
        canal.row("INSERT", "a", 208, "4", "four"),
    ]


def _after(canal: Sender) -> list[Sent]:
    return [
        canal.row("UPDATE", "a", 300, "3", "later", old="three"),
        canal.row("INSERT", "q", 300, "1", "q"),
        canal.row("INSERT", "s", 300, "2", "t", n="8"),
    ]


def _assert_exact(stream: Stream) -> None:
    assert stream.rows("a") == [(1, "x"), (3, "later"), (4, "four")]
    assert stream.rows("q") == [(1, "q"), (1, "q")]
    assert stream.rows("s") == [(1, "s", 7), (2, "t", 8)]
    assert (_gaps(stream, "a"), _gaps(stream, "q")) == ([], [])
    assert GapKind.UNKNOWN_DUPLICATES in {gap.kind for gap in _gaps(stream, "k")}
    assert GapKind.UNSURE_ORDER in {gap.kind for gap in _gaps(stream, "s")}
    assert lake_balance(stream.lake).is_balanced


def test_changes_from_the_start_of_the_export_are_applied_again(
    spark: SparkSession, tmp_path: Path, export: Path
) -> None:
    stream, canal = Stream(spark, tmp_path / "one"), Sender()
    _send(stream, *_before(canal))
    _send(stream, *_during(canal))
    _send(stream, *_after(canal))
    _adopt(stream, export)
    _assert_exact(stream)
    _send(stream, canal.row("DELETE", "a", 400, "1", "x"))
    assert stream.rows("a") == [(3, "later"), (4, "four")]
    assert _rebuilder(stream).rebuild().all_equal
    assert _rebuilder(stream).rebuild(["db.a"]).all_equal
    assert stream.rows("a") == [(3, "later"), (4, "four")]


def test_an_export_that_the_stream_has_not_reached(spark: SparkSession, tmp_path: Path, export: Path) -> None:
    """What the export has already arrives in later cuts."""
    stream, canal = Stream(spark, tmp_path / "one"), Sender()
    _send(stream, *_before(canal))
    _adopt(stream, export)
    assert stream.rows("a") == [(1, "x"), (2, "two"), (3, "three")]
    assert [_gaps(stream, table) for table in ("a", "k", "q", "s")] == [[]] * 4
    _send(stream, *_during(canal))
    _send(stream, *_after(canal))
    _assert_exact(stream)
    _send(stream, canal.ddl("TRUNCATE TABLE k", 400, "k"), canal.row("INSERT", "k", 401, "5", "new"))
    assert (stream.rows("k"), _gaps(stream, "k")) == ([(5, "new")], [])


def test_a_stream_that_may_have_begun_later(spark: SparkSession, tmp_path: Path, export: Path) -> None:
    stream, canal = Stream(spark, tmp_path / "late"), Sender()
    _send(stream, *_after(canal))
    with pytest.raises(LakeError, match="t has no change at or before it"):
        _adopt(stream, export)
    with pytest.raises(LakeError, match="t has no change at or before it"):
        _adopt(stream, export, changefeed_start=(EPOCH_MS + 200_000) << 18)
    _adopt(stream, export, changefeed_start=(EPOCH_MS + 100_000) << 18)
    assert stream.rows("a") == [(1, "x"), (2, "two"), (3, "later")]
    assert _gaps(stream, "a") == []


def test_a_partition_whose_first_records_have_expired(spark: SparkSession, tmp_path: Path, export: Path) -> None:
    stream, canal = Stream(spark, tmp_path / "expired"), Sender()
    stream.topic.offsets[1] = 7000
    _send(stream, *_before(canal), *((payload, 1) for payload, _ in _after(canal)))
    with pytest.raises(LakeError, match="t/1 has no change at or before it"):
        _adopt(stream, export)


def test_the_start_of_the_export_is_required(spark: SparkSession, tmp_path: Path, export: Path) -> None:
    stream = Stream(spark, tmp_path / "one")
    _send(stream, *_before(Sender()))
    loading = Loading(stream.paths, "load", lambda line: None, processes=1)
    with pytest.raises(SourceError, match=r"no TSO: the time at which it began \(its files say 2026-11-29 01:00:00"):
        loading.load("dumpling", str(export), lambda name: True)


def test_rows_of_dataworks(spark: SparkSession, tmp_path: Path, export: Path) -> None:
    """Its `commit_ts` is a sequence number and no time: statements of before the export do not follow it."""
    stream = Stream(spark, tmp_path / "one")
    types = {"id": "LONG", "v": "STRING"}
    truncate = dataworks("TRUNCATE", "a", 20, sql="TRUNCATE TABLE a", sequence=str(_SEQUENCE))
    _send(stream, (truncate, 0))
    for number, (step, key, value) in enumerate([(10, "1", "old"), (205, "1", "x"), (300, "3", "later")], 1):
        image, sequence = {"id": int(key), "v": value}, str(_SEQUENCE + number)
        payload = dataworks("INSERT", "a", step, after=image, types=types, key=["id"], sequence=sequence)
        _send(stream, (payload, 0))
    _adopt(stream, export)
    assert stream.rows("a") == [(1, "x"), (2, "two"), (3, "later")]
    assert _gaps(stream, "a") == []
    _send(stream, (dataworks("TRUNCATE", "a", 320, sql="TRUNCATE TABLE a", sequence=str(_SEQUENCE + 9)), 0))
    assert stream.rows("a") == []
    assert _rebuilder(stream).rebuild().all_equal


def test_a_second_export_of_the_same_time(spark: SparkSession, tmp_path: Path, export: Path) -> None:
    """The last adopted one counts."""
    stream, canal = Stream(spark, tmp_path / "one"), Sender()
    _send(stream, *_before(canal))
    for value in ("first", "second", "the third"):
        rows = f"INSERT INTO `a` VALUES\n(1,'{value}'){',(2,NULL)' * (value == 'second')};\n"
        (export / "db.a.000000001.sql").write_text(f"/*!40101 SET NAMES binary*/;\n{rows}")
        _adopt(stream, export)
        assert (1, value) in stream.rows("a")
    assert _rebuilder(stream).rebuild().all_equal
    assert stream.rows("a") == [(1, "the third")]


@pytest.mark.parametrize(
    ("kind", "name", "truth"),
    [
        ("dumpling", "mariadb-sql", "dumpling/expected-mariadb.json.gz"),
        ("mydumper", "plain", "mydumper/expected.json.gz"),
        ("mysqldump", "mysqldump97-hex-blob.sql", "mysqldump/expected-mysql97.json.gz"),
    ],
)
def test_real_exports_equal_their_truth(kind: str, name: str, truth: str, spark: SparkSession, tmp_path: Path) -> None:
    """The programs of MariaDB and MySQL print TIMESTAMPs in UTC, whatever the time zone of the pipeline is."""
    export = unpacked(f"{kind}/{name}", tmp_path)
    stream = Stream(spark, tmp_path / "one")
    _send(stream, *_before(Sender()))
    _adopt(stream, export, kind, "UTC" if kind == "dumpling" else "Asia/Shanghai")
    letters = stream.spark.read.format("delta").load(stream.paths.table("dead_letters")).collect()
    assert [letter["reason"] for letter in letters] == []
    exported = {str(table.name) for table in open_export(kind, str(export)).tables}  # type: ignore[arg-type]
    tables = {full_name: table for full_name, table in true_tables(truth).items() if full_name in exported}
    assert len(tables) >= len(true_tables(truth)) - (kind == "mydumper")  # which writes no name with a slash
    for full_name, table in tables.items():
        prefix = next(name for name in ("snap.", "a.b%c.", "数据.") if full_name.startswith(name))
        table_name = TableName(prefix[:-1], full_name.removeprefix(prefix))
        found = mirror_differences(spark, stream.paths, table_name, table["columns"], table["rows"])
        assert found == [], "\n".join(found)
