"""DDL that sends no rows: each story's mirrors equal the tables that upstream had."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline_tests.support.lakes.ddl_stories import STORIES, Messages
from cdc_pipeline_tests.support.lakes.ingested_ddl_stories import SLICES, assert_ingested
from cdc_pipeline_tests.support.lakes.ingested_stories import PARTITIONS
from cdc_pipeline_tests.support.lakes.mirror_checks import mirror_checks
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.messages import Topic, watermark


def _slice(topic: Topic, messages: Messages, end: int) -> Topic:
    for payload, partition in messages:
        topic.send(payload, partition)
    for partition in PARTITIONS:
        topic.send(watermark(end), partition)
    return topic


@pytest.fixture(scope="module", params=["", "file:"], ids=["by name", "by id"])
def lake(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LakePaths:
    """Local, and one in which mirrors do not move, as on object stores."""
    folder = tmp_path_factory.mktemp("ddl_stories")
    paths = LakePaths(f"{request.param}{folder / 'lake'}", "shop")
    topic = Topic()
    for part, end in SLICES.items():
        messages = [message for story in STORIES.values() for message in getattr(story, part)]
        _slice(topic, messages, end).write(folder / "captures", f"{part}.jsonl")
        ingest(spark, paths, folder / "captures")
    return paths


@pytest.mark.parametrize("name", STORIES)
def test_story(lake: LakePaths, spark: SparkSession, name: str) -> None:
    assert_ingested(spark, lake, STORIES[name])


def test_keys_and_columns(lake: LakePaths, spark: SparkSession) -> None:
    checks = mirror_checks(spark, lake, most_rows=0)  # keys are looked at in `test_stories`
    assert [(check.passed, check.description) for check in checks] == [(True, None)] * 3
