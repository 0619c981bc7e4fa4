"""DDL that sends no rows: each story's mirrors equal the tables that upstream had."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from cdc_pipeline.mirrors.rows import quoted
from cdc_pipeline.mirrors.state import MirrorState
from cdc_pipeline.resources.delta import table_state
from cdc_pipeline.resources.lake import LakePaths
from cdc_pipeline.schemas.table import TableName
from cdc_pipeline_tests.messages import Topic, watermark
from cdc_pipeline_tests.mirrors.ddl_stories import STORIES, DdlStory, Messages
from cdc_pipeline_tests.pipelines import ingest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = (0, 1, 2)
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


def assert_told(spark: SparkSession, lake: LakePaths, story: DdlStory) -> None:
    for full_name, expected in story.tables.items():
        path = lake.mirror(TableName(*full_name.split(".")))
        state = table_state(spark, path)
        if expected is None:
            assert state is None, full_name
            continue
        assert state is not None, full_name
        mirror = spark.read.format("delta").load(path)
        columns = [column for column in mirror.columns if not column.startswith("_")]
        rows = mirror.select(*(F.col(quoted(column)).cast("string") for column in columns)).collect()
        found = MirrorState.from_properties(state.properties).gaps
        assert tuple(columns) == expected.columns, full_name
        assert sorted(map(tuple, rows), key=str) == sorted(expected.rows, key=str), full_name
        assert bool(found) == expected.gaps, found
