"""Exports are loaded once, whole, in parts and in several processes, in local folders and on S3. Without Spark."""

from __future__ import annotations

import hashlib
import uuid
from pathlib import Path
from typing import Any, cast

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from cdc_pipeline.errors import LakeError, SourceError
from cdc_pipeline.lake.control_tables import read_rows
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.store import storage_options
from cdc_pipeline.lake.tables.baselines import BASELINE_FILES, baseline_tables
from cdc_pipeline.mirrors.operations import loading
from cdc_pipeline.mirrors.operations.loading import Loading
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.snapshots.position import ExportTimes
from cdc_pipeline_tests.support.exports import true_tables, unpacked
from cdc_pipeline_tests.support.servers.object_store import BUCKET

MANY = TableName("snap", "many")
_WITHOUT_ROWS = """-- MySQL dump 10.13
-- Host: localhost    Database: d
CREATE TABLE `t` (
  `id` int
);
-- Dump completed on 2026-11-28  0:27:03
"""


@pytest.fixture(params=["local", "s3"])
def paths(request: pytest.FixtureRequest, tmp_path: Path) -> LakePaths:
    if request.param == "local":
        return LakePaths(str(tmp_path / "lake"), "shop")
    request.getfixturevalue("s3")
    return LakePaths(f"s3a://{BUCKET}/{uuid.uuid4().hex}", "shop")


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """The statement of the largest table is divided, as Dumpling does with those of a megabyte."""
    folder = unpacked("dumpling/tidb-sql", tmp_path)
    file = folder / "snap.many.000000001.sql"
    text = file.read_text(encoding="utf-8")
    for row in range(50, 300, 50):
        text = text.replace(f",\n({row},", f";\nINSERT INTO `many` VALUES\n({row},")
    file.write_text(text, encoding="utf-8")
    return folder


def _load(paths: LakePaths, export: Path, *names: str, **options: Any) -> str:
    loader = Loading(paths, "run", lambda line: None, **{"processes": 1, **options})
    return loader.load("dumpling", str(export), lambda name: not names or str(name) in names)


def _tables(paths: LakePaths, baseline: str) -> dict[TableName, int]:
    return {table.name: table.rows for table in baseline_tables(_lake(paths), baseline)}


def _lake(paths: LakePaths) -> Lake:
    return Lake(cast(SparkSession, None), paths)


def _rows(paths: LakePaths, baseline: str, name: TableName) -> list[dict[str, Any]]:
    path = paths.baseline(baseline, name)
    return DeltaTable(path, storage_options=storage_options(path)).to_pyarrow_table().to_pylist()


@pytest.mark.parametrize("processes", [1, 2])
def test_all_tables(paths: LakePaths, export: Path, processes: int) -> None:
    baseline = _load(paths, export, processes=processes)
    truth = true_tables("dumpling/expected-tidb.json.gz")
    assert {str(name): rows for name, rows in _tables(paths, baseline).items()} == {
        name: len(table["rows"]) for name, table in truth.items()
    }
    for name in _tables(paths, baseline):
        rows = _rows(paths, baseline, name)
        assert len({(row["_file"], row["_row"]) for row in rows}) == len(rows) == len(truth[str(name)]["rows"])
    files = read_rows(_lake(paths), BASELINE_FILES, ("table", "=", "part_h"))
    assert [(row["number"], row["path"], row["sha256"]) for row in sorted(files, key=lambda row: row["number"])] == [
        (number, file.name, hashlib.sha256(file.read_bytes()).hexdigest())
        for number, file in enumerate(sorted(export.glob("snap.part_h.0*.sql")))
    ]


@pytest.mark.parametrize("options", [{"part_bytes": 500}, {"processes": 2, "part_bytes": 2000}])
def test_parts_and_processes(tmp_path: Path, export: Path, options: dict[str, int]) -> None:
    whole, parts = (LakePaths(str(tmp_path / name), "shop") for name in ("whole", "parts"))
    found = [
        _rows(paths, _load(paths, export, str(MANY), **one), MANY) for paths, one in ((whole, {}), (parts, options))
    ]
    first, second = (sorted(rows, key=lambda row: row["_row"]) for rows in found)
    assert first == second
    commits = DeltaTable(parts.baseline(_load(parts, export, str(MANY)), MANY)).history()
    assert len(commits) > 3


def test_a_load_that_was_stopped_goes_on(paths: LakePaths, export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_part, calls = loading.load_part, list[str]()

    def stop_at_the_fourth(part: loading.Part) -> tuple[int, str | None]:
        calls.append(part.file.path)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return load_part(part)

    monkeypatch.setattr(loading, "load_part", stop_at_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        _load(paths, export, str(MANY), part_bytes=500)
    baseline = _load(paths, export, str(MANY), part_bytes=500)
    assert _tables(paths, baseline) == {MANY: 300}
    rows = _rows(paths, baseline, MANY)
    assert sorted(row["_row"] for row in rows) == list(range(1, 301))
    made = len(calls)
    assert _load(paths, export, str(MANY), part_bytes=500) == baseline
    assert len(calls) == made  # all is there


def test_a_torn_file(tmp_path: Path, export: Path) -> None:
    paths = LakePaths(str(tmp_path / "lake"), "shop")
    file = export / "snap.many.000000001.sql"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(SourceError, match=r"snap\.many\.000000001\.sql, row \d+: .* cut short"):
        _load(paths, export, str(MANY))
    assert read_rows(_lake(paths), BASELINE_FILES) == []


def test_what_cannot_be_loaded(tmp_path: Path, export: Path) -> None:
    paths = LakePaths(str(tmp_path / "lake"), "shop")
    with pytest.raises(SourceError, match=r"has none of the tables\. It has: a\.b%c\.t-1 2, snap\.comp"):
        _load(paths, export, "other.table")
    dump = tmp_path / "dump.sql"
    dump.write_text(_WITHOUT_ROWS, encoding="utf-8")
    times = ExportTimes(1_700_000_000_000)
    loading = Loading(paths, "run", print, processes=1)
    with pytest.raises(SourceError, match=r"rows of d\.t as they are: .*dump\.sql: it has no section for rows"):
        loading.load("mysqldump", str(dump), lambda name: True, times)
    without = unpacked("dumpling/mariadb-sql", tmp_path)
    with pytest.raises(SourceError, match="has no TSO: the time at which it began"):
        _load(paths, without)
    with pytest.raises(LakeError, match="baselines need a lake in a local folder or on S3"):
        _load(LakePaths("hdfs://name/lake", "shop"), export)
    assert not Path(paths.home).exists()
