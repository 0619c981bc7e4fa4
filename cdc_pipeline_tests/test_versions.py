"""The oldest and the newest versions of the ranges in pyproject.toml: an environment for each, and tests of every stage in
it. requirements.lock has those between: Spark 4.1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.runs import mirror_differences, read_json, run_ingest
from cdc_pipeline_tests.support.toml import read_toml

_ROOT = Path(__file__).parents[1]
_SHOP = _ROOT / "data" / "captures" / "shop"
_OLDEST, _NEWEST = "lowest-direct", "highest"
_EXTRAS = ("glue", "kafka", "notify", "s3", "ui")
_TESTS = [
    "cli",
    "component",
    "contracts/test_agreement.py",
    "integration/test_dg.py",
    "integration/test_follow.py",
    "lake",
    "mysql/ddl",
    "sensors",
]


@pytest.mark.long
@pytest.mark.jvm
@pytest.mark.parametrize("resolution", [_OLDEST, _NEWEST])
def test_versions(tmp_path: Path, resolution: str) -> None:
    python = _environment(tmp_path, resolution)
    # warnings are errors with the versions of the lock only: other ones may deprecate what these do not
    paths = [str(_ROOT / "cdc_pipeline_tests" / name) for name in _TESTS]
    _run([python, "-m", "pytest", "-q", "-x", "-W", "default", "-m", "not long", *paths], timeout=5400)


@pytest.mark.long
@pytest.mark.jvm
def test_a_lake_of_the_oldest_versions_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    captures, lake = tmp_path / "captures", tmp_path / "lake"
    _add_capture(captures, "part-0001")
    _run_shop(_environment(tmp_path, _OLDEST), captures, lake)
    _add_capture(captures, "part-0002")
    assert run_ingest(captures, lake).success
    paths = _require_the_source(spark, lake)
    report = Rebuilder(CutMaker(Lake(spark, paths), "rebuild", "UTC", 2, lambda line: None)).rebuild()
    assert [str(found.table) for found in report.tables if not found.equal] == []


@pytest.mark.long
@pytest.mark.jvm
def test_the_newest_versions_go_on_with_a_lake(spark: SparkSession, tmp_path: Path) -> None:
    captures, lake = tmp_path / "captures", tmp_path / "lake"
    _add_capture(captures, "part-0001")
    assert run_ingest(captures, lake).success
    _add_capture(captures, "part-0002")
    _run_shop(_environment(tmp_path, _NEWEST), captures, lake)
    _require_the_source(spark, lake)


def _add_capture(captures: Path, part: str) -> None:
    captures.mkdir(exist_ok=True)
    shutil.copy(_SHOP / f"{part}.jsonl.gz", captures)


def _run_shop(python: str, captures: Path, lake: Path) -> None:
    variables = {"CDC_CAPTURES": str(captures), "CDC_LAKE": str(lake)}
    _run([str(Path(python).with_name("cdc-pipeline")), "run", "shop"], variables=variables)


def _require_the_source(spark: SparkSession, lake: Path) -> LakePaths:
    paths = LakePaths(str(lake), "shop")
    for table, truth in read_json(_SHOP / "expected.json")["tables"].items():
        name = TableName(*table.split(".", 1))
        assert mirror_differences(spark, paths, name, truth["columns"], truth["rows"]) == [], name
    return paths


def _environment(folder: Path, resolution: str) -> str:
    """The Python of a new environment with these versions."""
    environment = folder / "venv"
    _run([sys.executable, "-m", "venv", str(folder / "tools")])
    _run([str(folder / "tools/bin/pip"), "install", "--quiet", "uv"])
    uv = str(folder / "tools/bin/uv")
    wanted = folder / "requirements.txt"
    _run(
        [
            *(
                uv,
                "pip",
                "compile",
                "--quiet",
                str(_ROOT / "pyproject.toml"),
                *(f"--extra={extra}" for extra in _EXTRAS),
            ),
            *("--resolution", resolution, "--python", sys.executable, "-o", str(wanted)),
        ]
    )
    _run([uv, "venv", "--quiet", "--python", sys.executable, str(environment)])
    python = str(environment / "bin" / "python")
    _run([uv, "pip", "install", "--quiet", "--python", python, "-r", str(wanted), *_test_tools()])
    _run([uv, "pip", "install", "--quiet", "--python", python, "--no-deps", "--editable", str(_ROOT)])
    return python


def _test_tools() -> list[str]:
    """What the tests need besides the package: the newest that fits."""
    dev: list[str] = read_toml(_ROOT / "pyproject.toml")["project"]["optional-dependencies"]["dev"]
    return [tool for tool in dev if not tool.startswith("cdc_pipeline[")]


def _run(command: Sequence[str], timeout: float = 900, variables: Mapping[str, str] = MappingProxyType({})) -> None:
    """Runs a command that has to succeed."""
    hidden = {"PYTHONPATH", "VIRTUAL_ENV"}
    done = subprocess.run(
        command,
        cwd=_ROOT,
        env={name: value for name, value in os.environ.items() if name not in hidden} | dict(variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}"


def test_every_dependency_has_a_lower_bound() -> None:
    declared = read_toml(_ROOT / "pyproject.toml")["project"]
    extras = declared["optional-dependencies"]
    optional = [found for extra in _EXTRAS for found in extras[extra]]
    assert [found for found in (*declared["dependencies"], *optional) if ">=" not in found] == []
