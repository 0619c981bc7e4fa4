"""Events of a job without assets have what Dagster adds to those of assets: versions of code, data and inputs."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it decorates.

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from cdc_pipeline.assets.asset_events import AssetEvents
from cdc_pipeline.assets.nodes import CODE_VERSION
from cdc_pipeline_tests.support.stale import stale_causes

_RAW, _LOG, _NEW = (dg.AssetKey(["p", name]) for name in ("raw", "log", "new"))


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        yield found


def _definitions() -> dg.AssetsDefinition:
    specs = [
        dg.AssetSpec(_RAW, code_version=CODE_VERSION),
        dg.AssetSpec(_LOG, deps=[_RAW], code_version=CODE_VERSION),
    ]

    @dg.multi_asset(specs=specs, check_specs=[dg.AssetCheckSpec("balance", asset=_LOG, blocking=True)])
    def assets() -> Iterator[Any]:
        yield _materialized(_RAW, "1")
        yield _materialized(_LOG, "1")
        yield _balance()

    return assets


def _materialized(key: dg.AssetKey, version: str) -> dg.MaterializeResult[None]:
    return dg.MaterializeResult(asset_key=key, data_version=dg.DataVersion(version), metadata={"rows": 3})


def _balance(
    *, passed: bool = True, severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        check_name="balance", asset_key=_LOG, passed=passed, severity=severity, description="why", metadata={"rows": 3}
    )


def _events(instance: dg.DagsterInstance) -> AssetEvents:
    return AssetEvents(instance, {_RAW: [], _LOG: [_RAW]}, [_LOG])


def _log(instance: dg.DagsterInstance, *results: Any, success: bool = True) -> None:
    @dg.op(out=dg.Out(dg.Nothing))
    def step() -> Iterator[Any]:
        events = _events(instance)
        yield from (events.convert(result) for result in results)
        yield dg.Output(None)

    @dg.job
    def job() -> None:
        step()

    assert job.execute_in_process(instance=instance, raise_on_error=False).success is success


def _tags(instance: dg.DagsterInstance, key: dg.AssetKey) -> dict[str, str]:
    event = instance.get_latest_materialization_event(key)
    assert event is not None
    assert event.asset_materialization is not None
    return dict(event.asset_materialization.tags or {})


def test_version_tags_equal_those_that_dagster_sets(instance: dg.DagsterInstance) -> None:
    assert dg.materialize([_definitions()], instance=instance).success
    by_dagster = {key: _tags(instance, key) for key in (_RAW, _LOG)}
    _log(instance, _materialized(_RAW, "1"), _materialized(_LOG, "1"))
    for key, expected in by_dagster.items():
        found = _tags(instance, key)
        pointers = {name for name in expected if name.startswith("dagster/input_event_pointer/")}
        assert found.keys() == expected.keys() - {"dagster/storage_kind"}
        assert {name: found[name] for name in found.keys() - pointers} == {
            name: expected[name] for name in found.keys() - pointers
        }


def test_versions_of_inputs_come_from_this_run_or_the_newest_materialization(instance: dg.DagsterInstance) -> None:
    _log(instance, _materialized(_LOG, "7"))
    assert _tags(instance, _LOG)["dagster/input_data_version/p/raw"] == "INITIAL"
    _log(instance, _materialized(_RAW, "8"), _materialized(_LOG, "8"))
    assert _tags(instance, _LOG)["dagster/input_data_version/p/raw"] == "8"
    _log(instance, _materialized(_NEW, "1"))  # a mirror that the definitions do not have yet
    assert _tags(instance, _NEW)["dagster/input_data_version/p/log"] == "8"


_CUTS = dg.AssetKey(["p", "cuts"])


def _nodes(mirrors: list[dg.AssetKey], new: dg.AssetKey = _NEW) -> dg.Definitions:
    """What Dagster loads if the catalog has these mirrors. Runs materialize `new`."""
    specs = [dg.AssetSpec(key, deps=[_LOG], code_version=CODE_VERSION, skippable=True) for key in mirrors]
    cuts = dg.AssetSpec(_CUTS, deps=[_LOG, *mirrors], code_version=CODE_VERSION)

    @dg.multi_asset(specs=[dg.AssetSpec(_LOG, code_version=CODE_VERSION)])
    def decoded() -> Iterator[Any]:
        yield _materialized(_LOG, "1")

    @dg.multi_asset(specs=[*specs, cuts])
    def cut(context: dg.AssetExecutionContext) -> Iterator[Any]:
        events = AssetEvents(context.instance, {}, [_LOG], cuts=_CUTS)
        results = [_materialized(new, "1"), _materialized(_CUTS, "1")]
        yield from events.yielded(results, frozenset({_CUTS, *mirrors}))

    return dg.Definitions([decoded, cut])


def test_after_the_run_that_created_a_mirror_all_is_in_sync(instance: dg.DagsterInstance) -> None:
    """That run's definitions do not have the mirror, those that are loaded then do."""
    assert _nodes([]).resolve_implicit_global_asset_job_def().execute_in_process(instance=instance).success
    loaded = _nodes([_NEW])
    assert [stale_causes(loaded, instance, key) for key in (_LOG, _NEW, _CUTS)] == [[], [], []]
    assert loaded.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance).success
    assert [stale_causes(loaded, instance, key) for key in (_LOG, _NEW, _CUTS)] == [[], [], []]


@pytest.mark.parametrize("name", ["codes of shop", "表", "x/y", "\n", "a" * 300])
def test_a_mirror_of_any_name_is_reported(name: str, instance: dg.DagsterInstance) -> None:
    key = dg.AssetKey(["p", "mirror", "db", name])
    assert _nodes([], key).resolve_implicit_global_asset_job_def().execute_in_process(instance=instance).success
    assert _tags(instance, _CUTS)[f"dagster/input_data_version/p/mirror/db/{name}"] == "1"


def test_after_a_batch_that_created_a_mirror_all_is_in_sync(instance: dg.DagsterInstance) -> None:
    @dg.op(out=dg.Out(dg.Nothing))
    def step() -> Iterator[Any]:
        events = AssetEvents(instance, {_LOG: [], _CUTS: [_LOG]}, [_LOG], cuts=_CUTS)
        for batch, keys in enumerate([(_LOG, _NEW, _CUTS), (_LOG, _CUTS)]):
            yield from (events.convert(_materialized(key, str(batch))) for key in keys)
        yield dg.Output(None)

    @dg.job
    def follow() -> None:
        step()

    assert follow.execute_in_process(instance=instance).success
    assert stale_causes(_nodes([_NEW]), instance, _CUTS) == []


def test_checks_are_evaluated_by_a_job_without_assets(instance: dg.DagsterInstance) -> None:
    _log(instance, _balance(), _balance(passed=False), success=False)  # as for a job with assets
    key = dg.AssetCheckKey(_LOG, "balance")
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
    assert record.event is not None
    found = record.event.asset_check_evaluation
    assert found is not None
    assert (found.passed, found.description, found.blocking) == (False, "why", True)
    assert found.metadata["rows"].value == 3


def test_a_reported_event_is_stored_as_a_yielded_one_and_not_kept(instance: dg.DagsterInstance) -> None:
    """Dagster keeps what a step yields until the step ends."""
    results = [_materialized(_RAW, "1"), _materialized(_LOG, "1"), _balance()]

    @dg.op
    def step(context: dg.OpExecutionContext) -> None:
        events = _events(instance)
        for result in results:
            events.report(context, result)

    @dg.job
    def reporting() -> None:
        step()

    _log(instance, *results)
    yielded = [_stored(record) for record in instance.get_records_for_run(instance.get_runs()[0].run_id).records]
    found = reporting.execute_in_process(instance=instance)
    stored = [_stored(record) for record in instance.get_records_for_run(found.run_id).records]
    expected = [event for event in yielded if event is not None]
    assert len(expected) == 3
    assert [event for event in stored if event is not None] == expected
    assert not {event.event_type for event in found.all_events} & {
        dg.DagsterEventType.ASSET_MATERIALIZATION,
        dg.DagsterEventType.ASSET_CHECK_EVALUATION,
    }


def _stored(record: Any) -> tuple[Any, ...] | None:
    """What the log has of an event of an asset."""
    event = record.event_log_entry.dagster_event
    if event.event_type is dg.DagsterEventType.ASSET_MATERIALIZATION:
        materialization = event.step_materialization_data.materialization
        return event.step_key, materialization.asset_key, materialization.metadata, materialization.tags, event.message
    if event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION:
        check = event.asset_check_evaluation_data
        return event.step_key, check.asset_key, check.check_name, check.passed, check.metadata, event.message
    return None


def test_only_errors_of_blocking_checks_block(instance: dg.DagsterInstance) -> None:
    events = _events(instance)
    warning = _balance(passed=False, severity=dg.AssetCheckSeverity.WARN)
    other = dg.AssetCheckResult(check_name="other", asset_key=_LOG, passed=False)
    assert events.failed_blocking_checks([_balance(), warning, other, _materialized(_LOG, "1")]) == []
    assert events.failed_blocking_checks([_balance(passed=False)]) == ["p/log:balance"]
