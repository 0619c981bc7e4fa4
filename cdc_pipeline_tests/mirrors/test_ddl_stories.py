"""DDL that sends no rows: each story's mirrors equal the tables that upstream had."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cdc_pipeline.resources.lake import LakePaths
from cdc_pipeline.schemas.table import TableName
from cdc_pipeline_tests.checks.mirror_checks import mirror_checks
from cdc_pipeline_tests.messages import Topic, watermark
from cdc_pipeline_tests.mirrors.ddl_stories import STORIES, DdlStory, Messages
from cdc_pipeline_tests.mirrors.test_stories import PARTITIONS, assert_mirror
from cdc_pipeline_tests.pipelines import ingest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLICES = {"first": 10, "second": 100}


def _slice(topic: Topic, messages: Messages, end: int) -> Topic:
    for payload, partition in messages:
        topic.send(payload, partition)
    for partition in PARTITIONS:
        topic.send(watermark(end), partition)
    return topic


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LakePaths:
    folder = tmp_path_factory.mktemp("ddl_stories")
    paths = LakePaths(str(folder / "lake"), "shop")
    topic = Topic()
    for part, end in SLICES.items():
        messages = [message for story in STORIES.values() for message in getattr(story, part)]
        _slice(topic, messages, end).write(folder / "captures", f"{part}.jsonl")
        ingest(spark, paths, folder / "captures")
    return paths


@pytest.mark.parametrize("name", STORIES)
def test_story(lake: LakePaths, spark: SparkSession, name: str) -> None:
    assert_told(spark, lake, STORIES[name])


def test_keys_and_columns_are_as_told(lake: LakePaths, spark: SparkSession) -> None:
    checks = mirror_checks(spark, lake, most_rows=0)  # keys are looked at in `test_stories`
    assert [(check.passed, check.description) for check in checks] == [(True, None)] * 2


def assert_told(spark: SparkSession, lake: LakePaths, story: DdlStory) -> None:
    for full_name, expected in story.tables.items():
        assert_mirror(spark, lake, TableName(*full_name.split(".")), expected)
