"""The built wheel in Dagster projects of someone else: a clean environment, the steps of the documentation. Two projects of
a workspace are two code locations with a pipeline each, and the mirrors of one have a gap."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import CaptureFilesSource
from cdc_pipeline.lake.catalog import CatalogEntry, write_catalog
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline_tests.support.lakes.stories import KEYED, TYPES
from cdc_pipeline_tests.support.messages import Topic, ddl, row, watermark
from cdc_pipeline_tests.support.shop import CAPTURE
from cdc_pipeline_tests.support.wheels import build_wheel

_PORT = 3917
_ACTIVE = "--use-active-venv"
_RESOURCES = """\
import dagster as dg

from cdc_pipeline import SparkLakehouse


@dg.definitions
def resources() -> dg.Definitions:
    return dg.Definitions(resources={"lakehouse": SparkLakehouse(driver_memory="2g"), "spark": "something else"})
"""
_PAGE = (Path(__file__).parents[2] / "docs" / "install.md").read_text(encoding="utf-8")
_REPORT = """\
from cdc_pipeline import SparkLakehouse, read_cut


@dg.asset(deps=[ORDERS], automation_condition=dg.AutomationCondition.eager(), group_name="reports")
def order_count(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    cut = read_cut(SparkLakehouse().session, LAKE, NAME)
    return dg.MaterializeResult(metadata={"orders": cut["shop.orders"].count()})
"""

_WORKSPACE = """\
directory_type = "workspace"

[workspace]

[[workspace.projects]]
path = "mine"

[[workspace.projects]]
path = "eu"
"""
_CHECK = """
query ($path: [String!]!) {
  workspaceOrError { ... on Workspace { locationEntries { name locationOrLoadError { __typename } } } }
  assetNodeOrError(assetKey: {path: $path}) { ... on AssetNode {
    dependedByKeys { path }
    assetChecksOrError { ... on AssetChecks { checks {
      name
      executionForLatestMaterialization { status evaluation { success severity description } }
    } } }
  } }
}
"""

_BOTH = ("ORDERS", "CUTS")


def documented_assets() -> str:
    """The code of the section."""
    return _PAGE.split("## Assets of yours on a mirror")[1].split("```python\n")[1].split("```")[0]


@pytest.mark.parametrize(
    ("cuts", "expected"),
    [
        # no cut, one that changed the mirror, one that did not, one that did
        ([(), _BOTH, ("CUTS",), _BOTH], [[], ["revenue", "first_report", "totals"], ["totals"], ["revenue", "totals"]]),
        # the mirror is older than the assets
        ([_BOTH, _BOTH], [["first_report"], ["revenue", "totals"]]),
    ],
)
def test_documented_conditions(cuts: list[tuple[str, ...]], expected: list[list[str]], tmp_path: Path) -> None:
    """What they request after each cut."""
    scope, definitions = _definitions(tmp_path)
    assets = [scope[name] for name in ("revenue", "first_report", "totals")]
    cursor, requested = None, []
    with dg.DagsterInstance.ephemeral() as instance:
        for materialized in cuts:
            for name in materialized:
                instance.report_runless_asset_event(dg.AssetMaterialization(scope[name]))
            found = dg.evaluate_automation_conditions(
                definitions, instance, dg.AssetSelection.assets(*assets), cursor=cursor
            )
            cursor = found.cursor
            requested.append([asset.key.path[-1] for asset in assets if found.get_num_requested(asset.key)])
            for name in requested[-1]:
                instance.report_runless_asset_event(dg.AssetMaterialization(name))
    assert requested == expected


def _definitions(tmp_path: Path) -> tuple[dict[str, Any], dg.Definitions]:
    """The names that the section defines, and its assets on the mirror of a pipeline."""
    paths = LakePaths(str(tmp_path), "orders")
    Path(paths.home).mkdir(parents=True)
    write_catalog(paths, [CatalogEntry("shop", "orders", "elsewhere", ())])
    source = CaptureFilesSource(type="capture_files", path="captures")
    scope: dict[str, Any] = {}
    exec(documented_assets(), scope)  # the page's own text
    assets = [scope[name] for name in ("revenue", "invoices", "first_report", "totals")]
    pipeline = CdcPipeline(name="orders", source=source, lake=str(tmp_path)).build_defs()
    return scope, dg.Definitions.merge(pipeline, dg.Definitions(assets))


def test_a_documented_condition_waits_until_a_gap_closes(tmp_path: Path) -> None:
    scope, definitions = _definitions(tmp_path)
    cursor, requested = None, []
    with dg.DagsterInstance.ephemeral() as instance:
        for passed in (True, False, None, True):  # None: no cut
            if passed is not None:
                instance.report_runless_asset_event(dg.AssetMaterialization(scope["ORDERS"]))
                instance.report_runless_asset_event(
                    dg.AssetCheckEvaluation(
                        asset_key=scope["ORDERS"],
                        check_name="no_gaps",
                        passed=passed,
                        metadata={},
                        severity=dg.AssetCheckSeverity.WARN,
                    )
                )
            found = dg.evaluate_automation_conditions(definitions, instance, dg.AssetSelection.all(), cursor=cursor)
            cursor = found.cursor
            requested.append([name for name in ("revenue", "invoices") if found.get_num_requested(dg.AssetKey(name))])
            for name in requested[-1]:
                instance.report_runless_asset_event(dg.AssetMaterialization(name))
    # at first the mirror is older than the assets
    assert requested == [[], ["revenue"], [], ["revenue", "invoices"]]


class _Project:
    """A folder with an environment, and the commands that a user would type."""

    def __init__(self, place: Path, name: str = "mine") -> None:
        self.place, self.bin = place, place / "venv" / "bin"
        self.name, self.folder = name, place / name
        (place / "home").mkdir(exist_ok=True)

    def create(self) -> None:
        self.run("create-dagster", "project", self.name, "--no-uv-sync", cwd=self.place)
        self.run("pip", "install", "--quiet", "--no-deps", "--editable", ".")

    @property
    def defs(self) -> Path:
        return self.folder / "src" / self.name / "defs"

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        return {
            **kept,
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "VIRTUAL_ENV": str(self.place / "venv"),
            "DAGSTER_HOME": str(self.place / "home"),
            "NO_COLOR": "1",
            "CDC_DRIVER_MEMORY": "2g",
        }

    def run(self, *command: str, cwd: Path | None = None) -> str:
        """The output of a command that has to succeed."""
        done = subprocess.run(
            command,
            cwd=cwd or self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=1200,
            check=False,
        )
        assert done.returncode == 0, f"{command}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def edit(self, name: str, **changed: str) -> None:
        """Replaces the text after these fields of a scaffolded file."""
        file = self.defs / name / "defs.yaml"
        lines = file.read_text(encoding="utf-8").splitlines()
        for field, value in changed.items():
            (number,) = [number for number, line in enumerate(lines) if line.strip().startswith(f"{field}:")]
            indent = lines[number][: len(lines[number]) - len(lines[number].lstrip())]
            lines[number] = f"{indent}{field}: {value}"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write_planted_gap(folder: Path) -> None:
    """A capture of two tables. A change of one of them replaces another row than its mirror has: a change is missing."""
    topic = Topic("eu")
    for table in ("orders", "customers"):
        create = ddl(KEYED.format(table), 1, table=table, database="shop", kind="CREATE")
        insert = row("INSERT", table, 2, {"id": "1", "v": "a"}, types=TYPES, key=["id"], database="shop")
        for message in (create, insert):
            topic.send(message)
    data, old = {"id": "1", "v": "c"}, {"id": "1", "v": "b"}
    topic.send(row("UPDATE", "orders", 3, data, old=old, types=TYPES, key=["id"], database="shop"))
    topic.send(watermark(9))
    topic.write(folder, "1.jsonl")


@pytest.mark.long
@pytest.mark.jvm
def test_projects_of_someone_else(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=300)
    project = _Project(tmp_path)
    project.run("pip", "install", "--quiet", f"{wheel}[ui]", "create-dagster", cwd=tmp_path)
    project.create()

    # both pipelines write to one lake. A relative path would be below the folder in which `dg` starts
    lake = str(tmp_path / "lake")
    names = f'LAKE, NAME = {lake!r}, "{{}}"\n'
    # four lines: the path of the captures, the lake, the policy, the sensor
    project.run("dg", "scaffold", "defs", "cdc_pipeline.CdcPipeline", "orders", "--source", "capture_files")
    project.edit("orders", path=str(CAPTURE), lake=lake, ddl_policy="keep", running="true")
    (project.defs / "report.py").write_text(documented_assets() + names.format("orders") + _REPORT, encoding="utf-8")
    assert "All definitions loaded successfully" in project.run("dg", "check", "defs")

    # another code location: its pipeline has a Spark resource of the project, and a planted gap below an asset
    eu = _Project(tmp_path, "eu")
    eu.create()
    eu.run("dg", "scaffold", "defs", "cdc_pipeline.CdcPipeline", "eu", "--source", "capture_files")
    _write_planted_gap(tmp_path / "planted")
    eu.edit("eu", path=str(tmp_path / "planted"), lake=lake, time_zone="UTC\n  spark_resource: lakehouse")
    (eu.defs / "resources.py").write_text(_RESOURCES, encoding="utf-8")
    report = documented_assets().partition("\n# ")[0].replace('["orders", ', '["eu", ') + names.format("eu") + _REPORT
    report = report.replace("order_count", "eu_order_count")
    (eu.defs / "report.py").write_text(report, encoding="utf-8")
    (tmp_path / "dg.toml").write_text(_WORKSPACE, encoding="utf-8")
    assert "All definitions loaded successfully" in project.run("dg", "check", "defs", _ACTIVE, cwd=tmp_path)
    for one, expected in ((project, "order_count"), (eu, "eu_order_count")):
        listed = {asset["asset_key"] for asset in json.loads(one.run("dg", "list", "defs", "--json"))["assets"]}
        assert {"orders/consistent_cuts" if one is project else "eu/consistent_cuts", expected} <= listed

    assert "# Operations" in project.run("cdc-pipeline", "docs", "operations")
    assert "ok   source" in project.run("cdc-pipeline", "doctor", "orders", "--no-spark")
    project.run("dg", "launch", "--job", "orders_ingest")
    status = json.loads(project.run("cdc-pipeline", "status", "--name", "orders", "--json"))
    rows = {mirror["table"]: mirror["rows"] for mirror in status["mirrors"]}
    assert rows["shop.orders"] == 252
    assert " INSERT (key id)" in project.run("cdc-pipeline", "history", "shop.orders", "100001", "--name", "orders")
    # the mirrors are assets now, which Dagster's graph of the project shows above the report
    graph = json.loads(project.run("dg", "list", "defs", "--json"))
    assert "orders/mirror/shop/orders" in {asset["asset_key"] for asset in graph["assets"]}
    project.run("dg", "launch", "--assets", "order_count")
    eu.run("dg", "launch", "--job", "eu_ingest")
    eu.run("dg", "launch", "--job", "eu_verify")
    # the checks of a mirror do not block
    eu.run("dg", "launch", "--assets", "eu_order_count")
    with _dev_server(project) as ask:
        _shows_the_gap(ask)
    assert "Traceback" not in (tmp_path / "dev.log").read_text()


def _shows_the_gap(ask: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Both code locations are loaded, and the page of the mirror says what is wrong and what to do."""
    found = {}
    for table in ("orders", "customers"):
        shown = ask({"query": _CHECK, "variables": {"path": ["eu", "mirror", "shop", table]}})
        entries = shown["workspaceOrError"]["locationEntries"]
        assert sorted((entry["name"], entry["locationOrLoadError"]["__typename"]) for entry in entries) == [
            ("eu", "RepositoryLocation"),
            ("mine", "RepositoryLocation"),
        ]
        checks = shown["assetNodeOrError"]["assetChecksOrError"]["checks"]
        found[table] = {check["name"]: check["executionForLatestMaterialization"] for check in checks}
        if table == "orders":
            below = [key["path"] for key in shown["assetNodeOrError"]["dependedByKeys"]]
            assert sorted(below) == [["eu", "consistent_cuts"], ["eu_order_count"]]
    assert found["customers"]["before_images"]["status"] == "SUCCEEDED"
    red = found["orders"]["before_images"]
    assert (red["status"], red["evaluation"]["severity"]) == ("FAILED", "ERROR")
    described = red["evaluation"]["description"]
    assert described.startswith("`1 change(s) found another row than they replace (columns v), the first at eu/0@4: ")
    assert described.endswith("begin them again with a snapshot (`cdc-pipeline docs snapshots`)")


@contextlib.contextmanager
def _dev_server(project: _Project) -> Iterator[Callable[[dict[str, Any]], dict[str, Any]]]:
    """`dg dev` of the workspace. Yields what answers GraphQL."""
    log = project.place / "dev.log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            [str(project.bin / "dg"), "dev", _ACTIVE, "--port", str(_PORT)],
            cwd=project.place,
            env={**project.environment, "CDC_WEBSERVER": f"127.0.0.1:{_PORT}"},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def ask(question: dict[str, Any]) -> dict[str, Any]:
        body, kind = json.dumps(question).encode(), {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{_PORT}/graphql", body, kind)
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        assert "errors" not in found, found
        return dict(found["data"])

    try:
        until = time.monotonic() + 300
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{_PORT}/server_info", timeout=5) as answer:
                    assert "dagster_version" in json.load(answer)
                    break
            except OSError:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(1)
        yield ask
        time.sleep(45)  # the first ticks of sensors
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
