"""The command `dg`: scaffold a pipeline, check and list definitions, errors with file and line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import dagster as dg
import pytest
from dagster_shared.yaml_utils.sample_yaml import generate_sample_yaml

from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.scaffold import PipelineScaffolder, ScaffoldParams, pipeline_name
from cdc_pipeline_tests.support.servers.webserver import ROOT

# Dagster 1.13.27 parses YAML with a deprecated call of pydantic.
pytestmark = pytest.mark.filterwarnings(
    "ignore:`parse_obj_as` is deprecated:pydantic.warnings.PydanticDeprecatedSince20"
)

_WRONG = """\
type: cdc_pipeline.CdcPipeline
attributes:
  name: wrong
  lake: lake
  source:
    type: kafka
    bootstrap_server: b:9092
    topics: 7
  sensor:
    interval: 5
  colour: red
  merge_threads: [2]
"""
_ERRORS = [
    "7 - cdc_pipeline.CdcPipeline attributes.source.bootstrap_server Additional properties are not allowed",
    "8 - cdc_pipeline.CdcPipeline attributes.source.topics 7 is not valid",
    "5 - cdc_pipeline.CdcPipeline attributes.source 'bootstrap_servers' is a required property",
    "10 - cdc_pipeline.CdcPipeline attributes.sensor.interval Additional properties are not allowed",
    "11 - cdc_pipeline.CdcPipeline attributes.colour Additional properties are not allowed",
    "12 - cdc_pipeline.CdcPipeline attributes.merge_threads [2] is not valid",
    # the known fields
    "5 - cdc_pipeline.CdcPipeline attributes.source 'bootstrap_server' is not one of ['type', 'bootstrap_servers', ",
    "9 - cdc_pipeline.CdcPipeline attributes.sensor 'interval' is not one of ['running', 'interval_seconds', ",
    "2 - cdc_pipeline.CdcPipeline attributes 'colour' is not one of ['name', 'source', 'lake', ",
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A writable copy of this project."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copytree(ROOT / "cdc_pipeline", folder / "cdc_pipeline", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def _dg(project: Path, *arguments: str) -> tuple[int, str, str]:
    """(status, output, errors) of the command; the errors include Dagster's warnings."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("dg")), *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project), "NO_COLOR": "1", "DAGSTER_HOME": "", "CDC_LAKE": "lake"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    return done.returncode, re.sub(r"\x1b\[\d*m", "", done.stdout), done.stderr


def test_a_scaffolded_pipeline_is_checked_and_listed(project: Path) -> None:
    status, output, errors = _dg(project, "scaffold", "defs", "cdc_pipeline.CdcPipeline", "eu-orders")
    assert status == 0, output + errors
    assert "bootstrap_servers" in (project / "cdc_pipeline" / "defs" / "eu-orders" / "defs.yaml").read_text()
    status, output, errors = _dg(project, "check", "defs")
    assert (status, "All component YAML validated" in output, "All definitions loaded" in output) == (0, True, True), (
        errors
    )
    status, output, errors = _dg(project, "list", "defs", "--json")
    assert status == 0, errors
    found = json.loads(output)
    assert {asset["asset_key"] for asset in found["assets"]} >= {"shop/change_log", "eu_orders/raw_topic_snapshot"}
    assert {sensor["name"] for sensor in found["sensors"]} >= {"shop_new_offsets", "eu_orders_new_tables"}


def test_errors_of_fields_have_their_line(project: Path) -> None:
    folder = project / "cdc_pipeline" / "defs" / "wrong"
    folder.mkdir()
    (folder / "defs.yaml").write_text(_WRONG)
    status, output, _ = _dg(project, "check", "yaml", "cdc_pipeline/defs/wrong")
    shutil.rmtree(folder)
    assert status == 1
    lines = [line for line in output.splitlines() if line.startswith(str(folder))]
    for line in _ERRORS:
        assert any(found.startswith(f"{folder / 'defs.yaml'}:{line}") for found in lines), (line, output)
    assert len(lines) == len(_ERRORS), output


def test_errors_of_values_have_their_line(load: Callable[[str], CdcPipeline]) -> None:
    good = (
        "type: cdc_pipeline.CdcPipeline\nattributes:\n  name: p\n  lake: l\n  source: {type: capture_files, path: c}\n"
    )
    with pytest.raises(Exception, match="Error while loading component") as raised:
        load(f"{good}  sensor:\n    interval_seconds: many\n")
    output = ""
    error: BaseException | None = raised.value
    while error is not None:
        output, error = f"{output}\n{error}", error.__cause__
    for part in ("defs.yaml:6 - attributes.sensor", "interval_seconds\n  Input should be a valid integer", "'many'"):
        assert part in output, output


@pytest.mark.parametrize("source", get_args(ScaffoldParams.model_fields["source"].annotation))
def test_scaffolded_file_loads(
    load: Callable[[str], CdcPipeline], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Any
) -> None:
    folder = tmp_path / "2-orders"
    folder.mkdir()

    def scaffolded(kind: Any, target: Path, *, append: bool = False) -> None:
        params = ScaffoldParams(source=source)
        request = dg.ScaffoldRequest("cdc_pipeline.CdcPipeline", target, kind, tmp_path, params, append)
        PipelineScaffolder().scaffold(request)

    scaffolded("yaml", folder)
    text = (folder / "defs.yaml").read_text()
    component = load(text)
    assert (component.name, component.source.type) == ("p_2_orders", source)
    # also with its commented fields
    monkeypatch.setenv("KAFKA_USER", "alice")
    monkeypatch.setenv("KAFKA_PASSWORD", "x")
    load(re.sub(r"^( +)# ( *)(?=\S+:)", r"\1\2", text, flags=re.MULTILINE))
    scaffolded("yaml", folder / "defs.yaml", append=True)
    assert (folder / "defs.yaml").read_text() == f"{text}---\n{text}"
    scaffolded("python", folder)
    names: dict[str, Any] = {}
    exec((folder / "component.py").read_text(), names)
    assert names["load"](None).name == "p_2_orders"


def test_names_of_scaffolded_pipelines() -> None:
    names = {"orders": "orders", "eu-orders": "eu_orders", "7": "p_7", "_x": "p__x", "é b": "p___b"}
    assert {folder: pipeline_name(folder) for folder in names} == names


def test_schema_describes_each_field() -> None:
    """For the UI, and for editors with `dg utils generate-component-schema`."""
    schema = CdcPipeline.model().model_json_schema()
    models = {"CdcPipeline": schema, **schema["$defs"]}
    lacking = [
        f"{model}.{name}"
        for model, found in models.items()
        for name, field in found["properties"].items()
        if not field.get("description") and name != "type"
    ]
    assert lacking == []
    sample = generate_sample_yaml("cdc_pipeline.CdcPipeline", schema)
    assert "bootstrap_servers: broker:9092" in sample
    assert "(None)" not in sample
