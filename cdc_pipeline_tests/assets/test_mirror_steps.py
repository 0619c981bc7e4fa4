"""The step of the mirrors: what it plans, and which results are its own. Without Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from cdc_pipeline.assets import mirrors as module
from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import CaptureFilesSource
from cdc_pipeline.lake.catalog import CatalogEntry, write_catalog

_CUTS, *_MIRRORS = (dg.AssetKey(["p", *path]) for path in (["consistent_cuts"], *(["mirror", "d", t] for t in "abö")))
_OF_MIRRORS = ["before_images", "keys_hold", "no_gaps", "schema_matches_ddl"]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        yield found


def _check(key: dg.AssetKey, name: str, *, passed: bool = True) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(check_name=name, asset_key=key, passed=passed)


@pytest.fixture
def definitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dg.Definitions:
    """Of a cut that changed the mirror `a` and the new mirror `new`."""
    source = CaptureFilesSource(type="capture_files", path=str(tmp_path))
    component = CdcPipeline(name="p", source=source, lake=str(tmp_path / "lake"), spark_resource="spark")
    paths = component.pipeline.paths
    Path(paths.home).mkdir(parents=True)
    write_catalog(paths, [CatalogEntry("d", name, f"/lake/{name}", ()) for name in "abö"])
    new = dg.AssetKey(["p", "mirror", "d", "new"])

    def cut(*arguments: Any) -> list[Any]:
        changed = [dg.MaterializeResult(asset_key=key, data_version=dg.DataVersion("1")) for key in (_MIRRORS[0], new)]
        of_mirrors = [_check(key, "no_gaps", passed=key == new) for key in (_MIRRORS[0], new)]
        cuts = dg.MaterializeResult(asset_key=_CUTS, data_version=dg.DataVersion("1"))
        of_mirrors += [_check(key, check) for key in arguments[-1] - {_CUTS} for check in _OF_MIRRORS[1:]]
        return [*changed, cuts, *of_mirrors, _check(_CUTS, "balance"), _check(_CUTS, "no_gaps")]

    monkeypatch.setattr(module, "open_lake", lambda *_, **__: contextlib.nullcontext(SimpleNamespace()))
    monkeypatch.setattr(module, "cut_results", cut)
    mirrors = next(one for one in component.build_defs().assets or () if _CUTS in one.keys)  # type: ignore[union-attr]
    jobs = [
        dg.define_asset_job("whole", dg.AssetSelection.assets(mirrors) - _checks(*_MIRRORS)),
        dg.define_asset_job("one_mirror", dg.AssetSelection.assets(_MIRRORS[2])),
        dg.define_asset_job("its_checks", _checks(_MIRRORS[2])),
    ]
    spark = dg.ResourceDefinition.hardcoded_resource(None)
    return dg.Definitions(assets=[mirrors], jobs=jobs, resources={"spark": spark})


def _checks(*keys: dg.AssetKey) -> dg.AssetSelection:
    return dg.AssetSelection.checks(*(dg.AssetCheckKey(key, name) for key in keys for name in _OF_MIRRORS))


def _run(definitions: dg.Definitions, job: str, instance: dg.DagsterInstance) -> tuple[set[str], set[str], list[str]]:
    """The checks of mirrors that Dagster plans, those it stores, and the assets it stores, each as `table check`."""
    result = definitions.resolve_job_def(job).execute_in_process(instance=instance)
    assert result.success
    planned, checked, materialized = set[str](), set[str](), []
    for entry in instance.all_logs(result.run_id):
        event: Any = entry.dagster_event
        data = event and event.event_specific_data
        if event and event.event_type_value == "ASSET_CHECK_EVALUATION_PLANNED" and data.asset_key != _CUTS:
            planned.add(f"{data.asset_key.path[-1]} {data.check_name}")
        elif event and event.event_type_value == "ASSET_CHECK_EVALUATION" and data.asset_key != _CUTS:
            checked.add(f"{data.asset_key.path[-1]} {data.check_name}")
        elif event and event.event_type_value == "ASSET_MATERIALIZATION":
            materialized.append(data.materialization.asset_key.path[-1])
    return planned, checked, sorted(materialized)


def test_a_run_plans_no_check_of_a_mirror(definitions: dg.Definitions, instance: dg.DagsterInstance) -> None:
    """Dagster would show those without a result as skipped, in place of what they found before."""
    planned, checked, materialized = _run(definitions, "whole", instance)
    assert (planned, materialized) == (set(), ["a", "consistent_cuts", "new"])
    # of the new mirror before its node is loaded
    assert checked == {"a no_gaps", "new no_gaps"}
    (record,) = instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(_MIRRORS[0], "no_gaps"), 5
    )
    assert record.status.value == "FAILED"
    graph = definitions.resolve_asset_graph()
    assert {key.name for key in graph.asset_check_keys if key.asset_key == _MIRRORS[2]} == set(_OF_MIRRORS)


@pytest.mark.parametrize("job", ["one_mirror", "its_checks"])
def test_one_mirror_advances_all(definitions: dg.Definitions, instance: dg.DagsterInstance, job: str) -> None:
    planned, checked, materialized = _run(definitions, job, instance)
    assert planned == {f"ö {check}" for check in _OF_MIRRORS}
    # `before_images` has no result before the first verification
    assert checked == {"a no_gaps", "new no_gaps", *(f"ö {check}" for check in _OF_MIRRORS[1:])}
    assert materialized == ["a", "consistent_cuts", "new"]
