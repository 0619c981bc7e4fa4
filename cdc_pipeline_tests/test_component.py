from __future__ import annotations

import importlib
import json
import sys
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from pydantic import ValidationError

from cdc_pipeline.component import CaptureFilesSource, CdcPipeline
from cdc_pipeline.mirrors.policy import DdlPolicy
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.resources.spark import SparkLakehouse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# Dagster 1.13.27 parses YAML with a call that pydantic has renamed.
pytestmark = pytest.mark.filterwarnings(
    "ignore:`parse_obj_as` is deprecated:pydantic.warnings.PydanticDeprecatedSince20"
)

_GOOD: dict[str, Any] = {"name": "shop", "source": {"type": "capture_files", "path": "captures"}, "lake": "lake"}


def _yaml(fields: dict[str, Any]) -> str:
    """The attributes as YAML, written in its flow style."""
    return f"type: cdc_pipeline.CdcPipeline\nattributes: {json.dumps(fields)}\n"


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], CdcPipeline]]:
    """Loads a `defs.yaml` as Dagster does: in the `defs` folder of a project of its own."""
    package = "project_of_a_test"
    folder = tmp_path / package / "defs" / "shop"
    folder.mkdir(parents=True)
    (tmp_path / package / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "{package}"\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()

    def loaded(text: str) -> CdcPipeline:
        (folder / "defs.yaml").write_text(text)
        return dg.ComponentTree.for_project(tmp_path).load_component("shop", CdcPipeline)

    yield loaded
    for module in [name for name in sys.modules if name.split(".")[0] == package]:
        del sys.modules[module]


def _asset_keys(component: CdcPipeline) -> set[str]:
    definitions = dg.Definitions.merge(component.build_defs(), dg.Definitions(resources={"spark": SparkLakehouse()}))
    return {key.to_user_string() for key in definitions.resolve_asset_graph().get_all_asset_keys()}


_ASSETS = {
    f"shop/{name}"
    for name in (
        "raw_topic_snapshot",
        "change_log",
        "ddl_history",
        "watermarks",
        "dead_letters",
        "consistent_cuts",
    )
}


def test_a_good_file_loads(load: Callable[[str], CdcPipeline]) -> None:
    component = load(_yaml(_GOOD))
    assert component.pipeline == Pipeline("shop", "captures", "lake", "UTC", 2)
    assert component.dialect == "auto"


def test_all_fields(load: Callable[[str], CdcPipeline]) -> None:
    fields = {
        "name": "Orders_2",
        "source": {"type": "capture_files", "path": "/data/c d"},
        "lake": "s3a://bucket/lake",
        "dialect": "ticdc",
        "time_zone": "Asia/Shanghai",
        "merge_threads": 64,
        "keys": {"shop.events": ["user", "at"]},
        "ddl_policy": {"default": "keep", "tables": {"shop.orders*": "hold", "audit.*": "apply"}},
    }
    component = load(_yaml(fields))
    policy = DdlPolicy("keep", (("shop.orders*", "hold"), ("audit.*", "apply")))
    keys = {"shop.events": ("user", "at")}
    assert component.pipeline == Pipeline(
        "Orders_2", "/data/c d", "s3a://bucket/lake", "Asia/Shanghai", 64, "ticdc", keys, policy
    )
    assert component.dialect == "ticdc"


def test_python_gives_the_same(load: Callable[[str], CdcPipeline]) -> None:
    component = CdcPipeline(
        name="shop", source=CaptureFilesSource(type="capture_files", path="captures"), lake="lake", merge_threads=4
    )
    assert component == load(_yaml({**_GOOD, "merge_threads": 4}))


def test_the_environment_fills_in(load: Callable[[str], CdcPipeline], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_TEST_NAME", "orders")
    monkeypatch.setenv("CDC_TEST_PATH", "/from/there")
    monkeypatch.setenv("CDC_TEST_THREADS", "8")
    fields = {
        "name": "{{ env.CDC_TEST_NAME }}",
        "source": {"type": "capture_files", "path": "{{ env('CDC_TEST_PATH', 'captures') }}"},
        "lake": "{{ env('CDC_TEST_NONE', 'other') }}",
        "merge_threads": "{{ env.CDC_TEST_THREADS }}",
    }
    assert load(_yaml(fields)).pipeline == Pipeline("orders", "/from/there", "other", "UTC", 8)


def test_definitions(tmp_path: Path) -> None:
    source = CaptureFilesSource(type="capture_files", path="captures")
    component = CdcPipeline(name="shop", source=source, lake=str(tmp_path / "lake"))
    assert _asset_keys(component) == _ASSETS
    jobs = [job.name for job in component.build_defs().jobs or ()]
    assert jobs == ["shop_ingest", "shop_rebuild", "shop_ddl_dry_run", "shop_approve_ddl"]


def test_one_policy_for_all_tables(load: Callable[[str], CdcPipeline], monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(_yaml(_GOOD)).pipeline.ddl_policy == DdlPolicy("apply")
    assert load(_yaml({**_GOOD, "ddl_policy": "hold"})).pipeline.ddl_policy == DdlPolicy("hold")
    monkeypatch.setenv("CDC_POLICY", "keep")
    assert load(_yaml({**_GOOD, "ddl_policy": "{{ env.CDC_POLICY }}"})).pipeline.ddl_policy == DdlPolicy("keep")
    source = CaptureFilesSource(type="capture_files", path="captures")
    component = CdcPipeline(name="shop", source=source, lake="lake", ddl_policy="hold")  # type: ignore[arg-type]
    assert component.pipeline.ddl_policy == DdlPolicy("hold")


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"name": "1"}, "name"), ({"time_zone": "x"}, "time_zone"), ({"lake": ""}, "lake"), ({"x": 1}, "x")],
)
def test_wrong_in_python(fields: dict[str, Any], field: str) -> None:
    source = CaptureFilesSource(type="capture_files", path="captures")
    with pytest.raises(ValidationError) as error:
        CdcPipeline(**{**_GOOD, "source": source, **fields})
    assert [found["loc"] for found in error.value.errors()] == [(field,)]


# name → (attributes, what the message has: the field's path, the bad value, what was expected)
_WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "name with a digit first": ({**_GOOD, "name": "1shop"}, ["name", "'1shop' is no pipeline name", "a letter, then"]),
    "name with a slash": ({**_GOOD, "name": "a/b"}, ["name", "'a/b' is no pipeline name"]),
    "name empty": ({**_GOOD, "name": ""}, ["name", "'' is no pipeline name"]),
    "name a number": ({**_GOOD, "name": 5}, ["name", "5", "string"]),
    "no name": ({key: _GOOD[key] for key in ("source", "lake")}, ["name", "Field required"]),
    "time zone": (
        {**_GOOD, "time_zone": "Mars/Base"},
        ["time_zone", "'Mars/Base' is no time zone", "IANA", "such as UTC"],
    ),
    "time zone an offset": ({**_GOOD, "time_zone": "+08:00"}, ["time_zone", "'+08:00' is no time zone"]),
    "time zone empty": ({**_GOOD, "time_zone": ""}, ["time_zone", "'' is no time zone"]),
    "time zone a path": ({**_GOOD, "time_zone": "../etc"}, ["time_zone", "'../etc' is no time zone"]),
    "source type": (
        {**_GOOD, "source": {"type": "pigeon", "path": "c"}},
        ["source", "type", "'pigeon'", "'capture_files'"],
    ),
    "no source type": (
        {**_GOOD, "source": {"path": "c"}},
        ["attributes.source.CaptureFilesSourceModel.type", "Field required"],
    ),
    "no source path": (
        {**_GOOD, "source": {"type": "capture_files"}},
        ["attributes.source.CaptureFilesSourceModel.path", "Field required"],
    ),
    "source path empty": (
        {**_GOOD, "source": {"type": "capture_files", "path": ""}},
        ["source", "path", "at least 1 "],
    ),
    "source with a field more": (
        {**_GOOD, "source": {"type": "capture_files", "path": "c", "glob": "*"}},
        ["attributes.source.CaptureFilesSourceModel.glob", "Extra inputs are not permitted", "'*'"],
    ),
    "source a text": (
        {**_GOOD, "source": "captures"},
        ["attributes.source", "'captures' is no source", "type and path"],
    ),
    "no source": ({key: _GOOD[key] for key in ("name", "lake")}, ["source", "Field required"]),
    "no lake": ({key: _GOOD[key] for key in ("name", "source")}, ["lake", "Field required"]),
    "lake empty": ({**_GOOD, "lake": ""}, ["lake", "at least 1 "]),
    "a field more": ({**_GOOD, "tme_zone": "UTC"}, ["tme_zone", "Extra inputs are not permitted", "'UTC'"]),
    "dialect": ({**_GOOD, "dialect": "debezium"}, ["dialect", "'debezium'", "'auto', 'ticdc', 'canal' or 'dataworks'"]),
    "merge threads none": ({**_GOOD, "merge_threads": 0}, ["merge_threads", "0 is no number of threads", "1 to 64"]),
    "merge threads many": ({**_GOOD, "merge_threads": 65}, ["merge_threads", "65 is no number of threads", "1 to 64"]),
    "keys of no table": ({**_GOOD, "keys": {"events": ["a"]}}, ["keys", "'events' is no table", "database.table"]),
    "keys without columns": ({**_GOOD, "keys": {"db.t": []}}, ["keys", "db.t: [] is no key", "one or more columns"]),
    "keys twice": ({**_GOOD, "keys": {"db.t": ["a", "a"]}}, ["keys", "db.t: ['a', 'a'] is no key", "each once"]),
    "keys a text": ({**_GOOD, "keys": {"db.t": "id"}}, ["keys", "db.t", "list"]),
    "policy unknown": ({**_GOOD, "ddl_policy": "ask"}, ["ddl_policy", "'ask' is no policy", "apply, keep or hold"]),
    "policy of a table": (
        {**_GOOD, "ddl_policy": {"tables": {"db.*": "ask"}}},
        ["ddl_policy", "tables", "db.*", "'apply', 'keep' or 'hold'"],
    ),
    "policy of no pattern": (
        {**_GOOD, "ddl_policy": {"tables": {"orders": "hold"}}},
        ["ddl_policy", "'orders' is no pattern", "database.table"],
    ),
    "policy with a field too many": ({**_GOOD, "ddl_policy": {"other": "keep"}}, ["ddl_policy", "other"]),
    "merge threads a text": ({**_GOOD, "merge_threads": "two"}, ["merge_threads", "'two'", "integer"]),
}


@pytest.mark.parametrize("case", _WRONG)
def test_a_wrong_file_fails_at_load(case: str, load: Callable[[str], CdcPipeline]) -> None:
    fields, parts = _WRONG[case]
    with pytest.raises(Exception) as error:  # noqa: PT011 - Dagster's own kinds, which differ by where it finds the error
        load(_yaml(fields))
    chain, text = error.value, ""
    while chain is not None:
        text += f"{chain}\n"
        chain = chain.__cause__
    assert [part for part in parts if part not in text] == []
