"""The shop capture into a lake on S3: followed, by the command of `make demo`, and with content hashes of a local lake."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import duckdb_extension_delta
import duckdb_extension_httpfs
import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.cli.status import read_status
from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.run_fields import FollowSettings
from cdc_pipeline.component.source_field import CaptureFilesSource
from cdc_pipeline.lake.catalog import read_catalog
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.store import S3Folder
from cdc_pipeline.lake.tables.kept_cuts import REMOVED_FROM
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import published_entries
from cdc_pipeline.mirrors.operations.mirror_replacer import content_hash
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mirrors.operations.retention import Retention
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.sources.raw_batches import newest_note
from cdc_pipeline_tests.support.captures import capture_lines
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.runs import end_of_watermark, mirror_differences
from cdc_pipeline_tests.support.servers.object_store import ObjectStore, on_each_store
from cdc_pipeline_tests.support.shop import CAPTURE, TABLES

_ROOT = Path(__file__).parents[2]
_PATIENCE_SECONDS = 600.0
NAMES = [TableName(*table.split(".", 1)) for table in sorted(TABLES)]


def _hashes(spark: SparkSession, paths: LakePaths) -> dict[str, str]:
    """Mirror → content hash."""
    entries = published_entries(published_cut(Lake(spark, paths)), paths)
    return {str(entry.name): content_hash(spark.read.format("delta").load(entry.path)) for entry in entries}


@pytest.fixture(scope="module")
def local(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The content hashes of a local lake."""
    paths = LakePaths(str(tmp_path_factory.mktemp("local") / "lake"), "shop")
    ingest(spark, paths, CAPTURE)
    found = _hashes(spark, paths)
    assert set(found) == set(TABLES)
    return found


def _write_when(folder: S3Folder, name: str, file: Path, content: str) -> threading.Thread:
    """Writes the file as soon as the object exists."""

    def write() -> None:
        until = time.monotonic() + _PATIENCE_SECONDS
        while folder.e_tag(name) is None and time.monotonic() < until:
            time.sleep(0.5)
        file.write_text(content, encoding="utf-8")

    thread = threading.Thread(target=write)
    thread.start()
    return thread


@on_each_store(pytest.mark.core(2))
def test_a_run_that_follows(s3_spark: SparkSession, s3: ObjectStore, local: dict[str, str], tmp_path: Path) -> None:
    """Two batches in one run. A run of the ingest job adds nothing. What needs no Spark is read without it."""
    lines = capture_lines(CAPTURE)
    with (CAPTURE / "expected_at_watermarks.jsonl").open(encoding="utf-8") as stream:
        end = end_of_watermark(json.loads(next(stream))["watermark"], lines)
    paths = LakePaths(f"s3a://{s3.bucket}/{uuid.uuid4().hex}", "shop")
    (tmp_path / "1.jsonl").write_text("\n".join(lines[:end]) + "\n", encoding="utf-8")
    component = CdcPipeline(
        name="shop",
        source=CaptureFilesSource(type="capture_files", path=str(tmp_path)),
        lake=paths.root,
        follow=FollowSettings(idle_minutes=0.1),
    )
    cut = S3Folder(f"{paths.table('consistent_cuts')}/_delta_log"), f"{0:020}.json"
    thread = _write_when(*cut, tmp_path / "2.jsonl", "\n".join(lines[end:]) + "\n")
    with dg.DagsterInstance.ephemeral() as instance:
        for job in ("shop_follow", "shop_ingest"):
            result = component.build_defs().resolve_job_def(job).execute_in_process(instance=instance)
            assert result.success
    thread.join()
    for name in NAMES:
        truth = TABLES[str(name)]
        assert mirror_differences(s3_spark, paths, name, truth["columns"], truth["rows"]) == [], name
    assert _hashes(s3_spark, paths) == local

    # without Spark
    no_spark = Lake(None, paths)  # type: ignore[arg-type]
    assert [entry.name for entry in read_catalog(paths) if not entry.dropped] == NAMES
    assert [mirror.name for mirror in read_status(no_spark).mirrors] == NAMES
    note = newest_note(paths)
    assert note is not None
    assert note["batch"] == 2
    lease = S3Folder(paths.home).read(".lease")
    assert lease is not None
    assert json.loads(lease.content)["run_id"] is None
    assert s3.environment["AWS_SECRET_ACCESS_KEY"] not in s3.log.read_text(encoding="utf-8", errors="replace")


@pytest.mark.core(2)
def test_the_command_of_the_demo(
    s3_spark: SparkSession, s3: ObjectStore, local: dict[str, str], tmp_path: Path
) -> None:
    """`make demo` with an `s3a://` lake."""
    root = f"s3a://{s3.bucket}/{uuid.uuid4().hex}"
    found = subprocess.run(
        [sys.executable, "-m", "cdc_pipeline.cli.main", "run", "shop"],
        cwd=_ROOT,
        env={**os.environ, "CDC_LAKE": root, "DAGSTER_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-5000:]
    assert "shop.orders" in found.stdout
    assert s3.environment["AWS_SECRET_ACCESS_KEY"] not in found.stdout + found.stderr
    assert _hashes(s3_spark, LakePaths(root, "shop")) == local
    by_spark = {row["name"] for row in _documented("In Spark", root, s3)["names"].collect()}
    by_duckdb = {name for (name,) in _documented("In DuckDB", root, s3)["names"].fetchall()}
    assert len(by_spark) > 1
    assert by_spark == by_duckdb


def _documented(heading: str, root: str, s3: ObjectStore) -> dict[str, Any]:
    """Runs the code below that heading of docs/lakes.md on this lake. Returns its variables."""
    section = (_ROOT / "docs" / "lakes.md").read_text(encoding="utf-8").split(f"### {heading}\n")[1]
    (code, *_) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    code = code.replace("://my-bucket/lake", f"://{root.removeprefix('s3a://')}")
    host = s3.url.removeprefix("http://")
    code = code.replace("(TYPE s3,", f"(TYPE s3, ENDPOINT '{host}', URL_STYLE 'path', USE_SSL false,")
    loads = "; ".join(f"LOAD '{_extension(module)}'" for module in (duckdb_extension_delta, duckdb_extension_httpfs))
    code = code.replace("INSTALL delta; LOAD delta; INSTALL httpfs; LOAD httpfs", loads)
    names: dict[str, Any] = {}
    exec(compile(code, heading, "exec"), names)
    return names


def _extension(module: ModuleType) -> Path:
    (found,) = (Path(str(module.__file__)).parent / "extensions").rglob("*.duckdb_extension")
    return found


def test_old_batches_leave_the_lake(s3_spark: SparkSession, s3: ObjectStore, local: dict[str, str]) -> None:
    """The store copies the mirrors of the kept cut. A rebuild begins with them."""
    paths = LakePaths(f"s3a://{s3.bucket}/{uuid.uuid4().hex}", "shop")
    ingest(s3_spark, paths, CAPTURE)
    lake = Lake(s3_spark, paths)
    Retention(dict.fromkeys(REMOVED_FROM, 0)).advance(lake, "maintain", lambda line: None)
    assert [lake.read(table).count() for table in REMOVED_FROM] == [0, 0]
    report = Rebuilder(CutMaker(lake, "rebuild", "UTC", 2, lambda line: None)).rebuild()
    assert report.all_equal, report
    assert _hashes(s3_spark, paths) == local
