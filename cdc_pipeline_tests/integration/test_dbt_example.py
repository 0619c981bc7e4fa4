"""`examples/dbt_duckdb`: models on the mirrors of one cut.

requirements.lock has no dbt, and an environment with it takes minutes to install. The tests marked `needs_dbt` run in an
environment that has it, as the README of the example describes. The others run macro, models and tests with Jinja and
DuckDB.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import duckdb_extension_delta
import jinja2
import pytest
import yaml
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from cdc_pipeline.assets.nodes import CUTS, mirror_key, table_key
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sources.capture_files.source import CaptureFiles
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.shop import CAPTURE, TABLES

_SHOP = Pipeline("shop", CaptureFiles("captures"), "lake")
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "dbt_duckdb"
PROJECT = EXAMPLE / "shop_models"
_DECLARED = yaml.safe_load((PROJECT / "models" / "sources.yml").read_text())["sources"]
SOURCES: dict[str, list[dict[str, Any]]] = {source["name"]: source["tables"] for source in _DECLARED}
MIRRORS = [table["name"] for table in SOURCES["mirrors"]]
MODELS = ("order_balances", "orders_per_customer", "revenue_per_product", "built_cuts")
TESTS = ("orders_equal_their_lines", "payments_add_up")

needs_dbt = pytest.mark.skipif(
    not (importlib.util.find_spec("dagster_dbt") and importlib.util.find_spec("dbt")),
    reason="dbt is not installed; install it with: pip install -r examples/dbt_duckdb/requirements.txt",
)


def _asset_key(table: dict[str, Any]) -> list[str]:
    key: list[str] = table["config"]["meta"]["dagster"]["asset_key"]
    return key


def test_sources_are_the_assets_of_the_pipeline() -> None:
    for table in SOURCES["mirrors"]:
        assert f"shop.{table['name']}" in TABLES
        assert _asset_key(table) == list(mirror_key(_SHOP, TableName("shop", table["name"])).path)
    assert [_asset_key(table) for table in SOURCES["lake"]] == [list(table_key(_SHOP, CUTS).path)]


def test_models_use_each_source_and_have_documented_tests() -> None:
    texts = {file.stem: file.read_text() for file in (PROJECT / "models").glob("*.sql")}
    assert set(texts) == set(MODELS)
    assert {file.stem for file in (PROJECT / "tests").glob("*.sql")} == set(TESTS)
    used = {pair for text in texts.values() for pair in re.findall(r"source\('(\w+)', '(\w+)'\)", text)}
    assert used == {(name, table["name"]) for name, tables in SOURCES.items() for table in tables}
    described = yaml.safe_load((PROJECT / "models/models.yml").read_text())["models"]
    assert [model["name"] for model in described] == list(MODELS)
    assert all(model["description"] and model["columns"][0]["data_tests"] for model in described)
    compile((EXAMPLE / "definitions.py").read_text(), "definitions.py", "exec")
    project = yaml.safe_load((PROJECT / "dbt_project.yml").read_text())
    assert project["profile"] in yaml.safe_load((PROJECT / "profiles.yml").read_text())


def _pins(requirements: list[str]) -> dict[str, str]:
    return dict(line.split("==") for line in requirements if re.fullmatch(r"[\w-]+==[\d.]+", line))


def test_requirements_agree_with_the_lock() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = _pins([line.split(" ")[0] for line in lock.splitlines()])
    required = _pins((EXAMPLE / "requirements.txt").read_text().splitlines())
    assert required.pop("dagster-dbt") == pins["dagster-pyspark"]
    assert required
    assert required == {name: pins[name] for name in required}


_DUCKDB_TYPES = {"bigint(20) unsigned": "DECIMAL(20,0)", "bigint(20)": "BIGINT", "smallint(6)": "INTEGER"}


def _duckdb_type(mysql_type: str) -> str:
    """The type of a column in DuckDB; VARCHAR for types that the models do not use."""
    plain = re.match(r"decimal\(\d+,\d+\)|timestamp", mysql_type)
    return _DUCKDB_TYPES.get(mysql_type) or (plain[0].replace("timestamp", "TIMESTAMPTZ") if plain else "VARCHAR")


def _extended(path: Path | str = ":memory:") -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(str(path), config={"autoinstall_known_extensions": "false"})
    (extension,) = Path(duckdb_extension_delta.__file__).parent.rglob("*.duckdb_extension")
    connection.load_extension(str(extension))
    return connection


def _write_cut(lake: Path, cut_id: int, state: dict[str, Any], versions: dict[str, int]) -> None:
    """Appends a cut at `versions`. Writes the next Delta version of each mirror from a line of the shop's states."""
    duck = duckdb.connect()
    for name in MIRRORS:
        types = {column["name"]: _duckdb_type(column["type"]) for column in TABLES[f"shop.{name}"]["columns"]}
        table = state["tables"][f"shop.{name}"]
        picked = [(place, column) for place, column in enumerate(table["columns"]) if column in types]
        casts = ", ".join(f"CAST(v[{place + 1}] AS {types[column]}) AS {column}" for place, column in picked)
        rows = duck.execute(f"SELECT {casts} FROM (SELECT unnest(?::VARCHAR[][]) AS v)", [table["rows"]])
        write_deltalake(str(lake / "mirror/shop" / name), rows.to_arrow_table(), mode="overwrite")
    mirrors = [
        {"database": "shop", "table": name, "path": f"mirror/shop/{name}", "version": version}
        for name, version in versions.items()
    ]
    cut = duck.execute(
        "SELECT ?::BIGINT AS cut_id, ?::BIGINT AS resolved_tso, "
        "make_timestamptz((?::BIGINT >> 18) * 1000) AS resolved_time, "
        """?::STRUCT("database" VARCHAR, "table" VARCHAR, path VARCHAR, version BIGINT)[] AS mirrors""",
        [cut_id, state["watermark"], state["watermark"], mirrors],
    )
    write_deltalake(str(lake / "consistent_cuts"), cut.to_arrow_table(), mode="append")


@pytest.fixture(scope="module")
def states() -> list[dict[str, Any]]:
    """The shop's tables at its last two watermarks with a state."""
    lines = (CAPTURE / "expected_at_watermarks.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[-2:]]


@pytest.fixture(scope="module")
def lake(states: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cuts 1 and 2, and a cut 3 that is none: the lines of cut 1 with the orders and payments of cut 2."""
    folder = tmp_path_factory.mktemp("dbt") / "data" / "lake" / "shop"
    _write_cut(folder, 1, states[0], dict.fromkeys(MIRRORS, 0))
    _write_cut(folder, 2, states[1], dict.fromkeys(MIRRORS, 1))
    mixed = {**dict.fromkeys(MIRRORS, 1), "order_items": 0}
    _write_cut(folder, 3, states[1], mixed)
    return folder


class Models:
    """Runs macro, models and tests as dbt does, with Jinja and DuckDB."""

    def __init__(self, lake: Path) -> None:
        self.duck = _extended()
        self.jinja = jinja2.Environment(extensions=["jinja2.ext.do"])
        tables = [
            {**table, "schema": name, "identifier": table["name"]}
            for name, tables in SOURCES.items()
            for table in tables
        ]
        self.names: dict[str, Any] = {
            "lake": str(lake),
            "execute": True,
            "invocation_id": "i",
            "flags": {"WHICH": "build"},
            "graph": {"sources": dict(enumerate(tables))},
            "log": lambda text, info: None,
            "config": lambda **_: "",
            "ref": lambda name: name,
            "source": lambda name, table: f"{name}.{table}",
            "run_query": lambda sql: SimpleNamespace(rows=self.duck.execute(sql).fetchall()),
            "exceptions": SimpleNamespace(raise_compiler_error=self._fail),
        }

    @staticmethod
    def _fail(message: str) -> None:
        raise ValueError(message)

    def _render(self, file: str) -> str:
        return self.jinja.from_string((PROJECT / file).read_text()).render(self.names)

    def build(self, cut_id: int | None) -> dict[str, int]:
        """Builds all models. Returns the number of rows of each test."""
        self.names["var"] = {"lake": self.names["lake"], "cut_id": cut_id}.__getitem__
        macro = self.jinja.from_string((PROJECT / "macros/pin_cut.sql").read_text())
        macro.make_module(self.names).pin_cut()  # type: ignore[attr-defined]
        for model in MODELS:
            self.duck.execute(f"CREATE OR REPLACE TABLE {model} AS {self._render(f'models/{model}.sql')}")
        return {test: len(self.duck.execute(self._render(f"tests/{test}.sql")).fetchall()) for test in TESTS}


def _order_totals(state: dict[str, Any]) -> tuple[int, Decimal]:
    """Number of orders, and the sum of their totals."""
    table = state["tables"]["shop.orders"]
    totals = [Decimal(row[table["columns"].index("total")]) for row in table["rows"]]
    return len(totals), sum(totals, Decimal(0))


_TOTALS = """SELECT (SELECT count(*) FROM order_balances), (SELECT sum(total) FROM order_balances),
(SELECT sum(revenue) FROM revenue_per_product), (SELECT max(cut_id) FROM built_cuts)"""


def test_models_have_the_rows_of_their_cut(lake: Path, states: list[dict[str, Any]]) -> None:
    models = Models(lake)
    for cut_id, state in ((2, states[1]), (1, states[0])):
        assert models.build(cut_id) == dict.fromkeys(TESTS, 0)
        orders, total = _order_totals(state)
        assert models.duck.execute(_TOTALS).fetchall() == [(orders, total, total, cut_id)]
    assert models.duck.execute("SELECT resolved_tso, mirrors[1].version FROM built_cuts").fetchall() == [
        (states[0]["watermark"], 0)
    ]


def test_tests_fail_for_mirrors_of_two_moments(lake: Path) -> None:
    """By default the newest cut is used, here the mixed one."""
    assert Models(lake).build(None)["orders_equal_their_lines"] > 0


def test_a_cut_without_mirrors_is_an_error(lake: Path) -> None:
    with pytest.raises(ValueError, match=r"no cut 7 with mirrors in .*: run the job shop_ingest"):
        Models(lake).build(7)


@pytest.fixture(scope="module")
def example(lake: Path) -> Path:
    """A copy of the example, with the lake where it expects it."""
    return _copied(lake.parents[2])


def _copied(folder: Path) -> Path:
    created = shutil.ignore_patterns("data", "dagster_home", "target", "logs", "__pycache__", ".venv")
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True, ignore=created)
    return folder


def _run(folder: Path, *command: str) -> tuple[int, str]:
    """Status and output of a command that is installed beside this Python."""
    commands = Path(sys.executable).parent
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(commands / command[0]), *command[1:]],
        cwd=folder,
        env={**os.environ, "PATH": path, "NO_COLOR": "1", "DAGSTER_HOME": ""},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=600,
        check=False,
    )
    return done.returncode, done.stdout


def _built(example: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(example / "data" / "shop.duckdb"), read_only=True) as found:
        return found.execute(_TOTALS).fetchall()


@needs_dbt
def test_dbt_builds_the_models_of_a_cut(example: Path, states: list[dict[str, Any]]) -> None:
    """dbt's own tests fail for the mixed cut, and then `built_cuts` keeps the cut before."""
    status, output = _run(example / "shop_models", "dbt", "build", "--vars", "cut_id: 2")
    assert status == 0, output
    assert "the sources are the mirrors of cut 2" in output
    orders, total = _order_totals(states[1])
    assert _built(example) == [(orders, total, total, 2)]
    status, output = _run(example / "shop_models", "dbt", "build")
    assert status == 1
    assert re.search(r"FAIL \d+ orders_equal_their_lines", output), output
    assert _built(example)[0][-1] == 2


_CONDITIONS = """
import runpy
import dagster as dg

loaded = runpy.run_path("definitions.py")
defs, instance, cursor = loaded["defs"](), dg.DagsterInstance.ephemeral(), None
events = [None, loaded["CUTS"], None, ["shop", "mirror", "shop", "orders"], loaded["CUTS"], ["order_balances"]]
for key in events:
    if key:
        instance.report_runless_asset_event(dg.AssetMaterialization(key))
    found = dg.evaluate_automation_conditions(defs, instance, cursor=cursor)
    cursor = found.cursor
    print("requested", found.total_requested)
"""


@needs_dbt
def test_a_cut_requests_all_models_once(example: Path) -> None:
    """Not a mirror, and not the update of a model by a run that was in progress."""
    status, output = _run(example, "python", "-c", _CONDITIONS)
    assert status == 0, output
    assert re.findall(r"requested (\d+)", output) == ["0", "4", "0", "0", "4", "0"]


@needs_dbt
@pytest.mark.long
def test_the_job_builds_the_models_of_each_cut(
    spark: SparkSession, tmp_path: Path, states: list[dict[str, Any]]
) -> None:
    example = _copied(tmp_path / "example")
    captures = tmp_path / "captures"
    captures.mkdir()
    for number, part in enumerate(("part-0001.jsonl.gz", "part-0002.jsonl.gz"), start=1):
        shutil.copy(CAPTURE / part, captures)
        assert ingest(spark, LakePaths(str(example / "data" / "lake"), "shop"), captures).cut_id == number
        status, output = _run(example, "dagster", "job", "execute", "-f", "definitions.py", "-j", "shop_models_build")
        assert status == 0, output
        assert f"the sources are the mirrors of cut {number}" in output
    orders, total = _order_totals(states[1])
    assert _built(example) == [(orders, total, total, 2)]
