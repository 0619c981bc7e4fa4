"""Each story's mirrors equal the tables that upstream had."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline_tests.support.lakes.ingested_stories import PARTITIONS, assert_ingested
from cdc_pipeline_tests.support.lakes.mirror_checks import mirror_checks
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.stories import STORIES
from cdc_pipeline_tests.support.messages import Topic, watermark

pytestmark = pytest.mark.core(5, 7)

END = 1000


def write_captures(folder: Path) -> None:
    """Writes all stories as one topic, each partition closed by a watermark."""
    topic = Topic()
    for story in STORIES.values():
        for payload, partition in story.messages:
            topic.send(payload, partition)
    for partition in PARTITIONS:
        topic.send(watermark(END), partition)
    topic.write(folder, "all.jsonl")


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LakePaths:
    folder = tmp_path_factory.mktemp("stories")
    paths = LakePaths(str(folder / "lake"), "shop")
    write_captures(folder / "captures")
    ingest(spark, paths, folder / "captures")
    return paths


@pytest.mark.parametrize("name", STORIES)
def test_story(lake: LakePaths, spark: SparkSession, name: str) -> None:
    assert_ingested(spark, lake, STORIES[name])


def test_dead_letter_names_table_column_value_and_type(lake: LakePaths, spark: SparkSession) -> None:
    letters = spark.read.format("delta").load(lake.table("dead_letters")).collect()
    found = [tuple(letter[name] for name in ("rule", "database", "table", "column", "reason")) for letter in letters]
    assert found == [("value_has_type", "db", "bad", "id", "column id: expected int, found x1")]
    assert b'"id": "x1"' in bytes(letters[0]["value"])


def test_keys_and_columns(lake: LakePaths, spark: SparkSession) -> None:
    assert [(check.passed, check.description) for check in mirror_checks(spark, lake)] == [(True, None)] * 3


def test_a_dropped_mirror_is_kept_aside(lake: LakePaths, spark: SparkSession) -> None:
    from pathlib import Path

    kept = list(Path(lake.home, "dropped", "db").iterdir())
    assert [folder.name.split("@")[0] for folder in kept] == ["again"]
    assert [tuple(row)[:2] for row in spark.read.format("delta").load(str(kept[0])).collect()] == [(1, "a")]
