"""The external assets of what a pipeline reads: their names, and when they are observed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import dagster as dg
import pytest

from cdc_pipeline.assets.raw import OBSERVED_SECONDS, due_observations, raw_asset, source_specs
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sources.capture_files.source import CaptureFiles
from cdc_pipeline.sources.kafka.client_settings import ClientSettings
from cdc_pipeline.sources.kafka.positions import TopicSelection
from cdc_pipeline.sources.kafka.source import KafkaTopics
from cdc_pipeline.sources.source import NewRecords, NoNewRecords, PartitionLag, Source
from cdc_pipeline_tests.support.stale import stale_causes

_CLIENT = ClientSettings("broker:9092", {})
_ODD = ("orders", "a.b", "a-b", "a_b", "a__b", "-", ".._")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        yield found


def _pipeline(*topics: str, pattern: str | None = None) -> Pipeline:
    return Pipeline("p", KafkaTopics(_CLIENT, TopicSelection(topics, pattern)), "lake")


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (KafkaTopics(_CLIENT, TopicSelection(_ODD)), [*_ODD]),
        (KafkaTopics(_CLIENT, TopicSelection((), r"shop\..*")), ["topic_pattern"]),
        (CaptureFiles("/data/c d"), ["folder"]),
    ],
    ids=["topics", "pattern", "folder"],
)
def test_each_input_is_upstream_of_the_raw_table(source: Source, names: list[str]) -> None:
    pipeline = Pipeline("p", source, "lake")
    definitions = dg.Definitions(
        [*source_specs(pipeline).values(), raw_asset(pipeline)], resources={pipeline.spark_key: "not used"}
    )
    dg.Definitions.validate_loadable(definitions)
    graph = definitions.resolve_asset_graph()
    keys = {dg.AssetKey(["p", "source", name]) for name in names}
    assert graph.get(dg.AssetKey(["p", "raw_topic_snapshot"])).parent_keys == keys
    assert all(graph.get(key).is_external for key in keys)


_OLD = NoNewRecords("nothing new", (PartitionLag("t", 0, 7, 0), PartitionLag("u.v", 3, 1, 0)))
_NEW = NewRecords("4 new", "a", "b", 4, lags=(PartitionLag("t", 0, 11, 4), PartitionLag("u.v", 3, 1, 0)))


def _report(instance: dg.DagsterInstance, pipeline: Pipeline, found: NewRecords | NoNewRecords) -> dict[str, object]:
    """Stores the due observations, as the daemon does; input → lag or state."""
    due = list(due_observations(pipeline, instance, found))
    for observation in due:
        instance.report_runless_asset_event(observation)
    return {one.asset_key.path[-1]: next(iter(one.metadata.values())).value for one in due}


def test_observations_follow_changes_and_are_rare(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, start = _pipeline("t", "u.v"), time.time()
    assert _report(instance, pipeline, _OLD) == {"t": 0, "u.v": 0}
    assert _report(instance, pipeline, _NEW) == {}
    monkeypatch.setattr(time, "time", lambda: start + OBSERVED_SECONDS + 60)
    assert _report(instance, pipeline, _OLD) == {}
    assert _report(instance, pipeline, _NEW) == {"t": 4}  # and nothing of the topic without news
    record = instance.fetch_observations(dg.AssetKey(["p", "source", "t"]), limit=1).records[0].asset_observation
    assert record is not None
    table = record.metadata["partitions"].value
    assert [dict(row.data) for row in table.records] == [
        {"topic": "t", "partition": "0", "end_offset": "11", "lag": "4"}
    ]  # type: ignore[union-attr]


def test_a_pattern_is_one_asset(instance: dg.DagsterInstance) -> None:
    assert _report(instance, _pipeline(pattern=".*"), _NEW) == {"topic_pattern": 4}


def test_a_folder_has_a_state(instance: dg.DagsterInstance) -> None:
    pipeline = Pipeline("p", CaptureFiles("c"), "lake")
    assert _report(instance, pipeline, NoNewRecords("all 3 files are ingested")) == {
        "folder": "all 3 files are ingested"
    }


def test_a_topic_that_has_ended_is_not_observed(instance: dg.DagsterInstance) -> None:
    assert _report(instance, _pipeline("t", "ended"), replace(_OLD, lags=_OLD.lags[:1])) == {"t": 0}


def test_observations_leave_the_raw_table_in_sync(instance: dg.DagsterInstance) -> None:
    pipeline, key = _pipeline("t"), dg.AssetKey(["p", "raw_topic_snapshot"])

    @dg.asset(key=key, deps=[spec.key for spec in source_specs(pipeline).values()], code_version="1")
    def raw() -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(data_version=dg.DataVersion("1"))

    definitions = dg.Definitions([*source_specs(pipeline).values(), raw])

    _report(instance, pipeline, _OLD)
    assert definitions.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance).success
    assert stale_causes(definitions, instance, key) == []
    _report(instance, pipeline, _NEW)
    assert stale_causes(definitions, instance, key) == []
