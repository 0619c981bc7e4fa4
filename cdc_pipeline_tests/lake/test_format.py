"""A lake says its format; one of a newer version is refused before anything is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import Commit, commit_metadata, table_state
from cdc_pipeline.lake.format import LAKE_FORMAT, note_format, require_known_format

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_pipeline.lake.paths import LakePaths

_PROPERTY = "cdc.lake_format"


@pytest.fixture
def lake(spark: SparkSession, paths: LakePaths) -> LakePaths:
    """One as it was made before lakes had a format."""
    spark.range(1).write.format("delta").save(paths.table("raw_topic_snapshot"))
    return paths


def _told(spark: SparkSession, lake: LakePaths) -> str | None:
    state = table_state(spark, lake.table("raw_topic_snapshot"))
    assert state is not None
    return state.properties.get(_PROPERTY)


def test_a_lake_that_is_not_there_yet_passes(spark: SparkSession, paths: LakePaths) -> None:
    require_known_format(spark, paths)
    note_format(spark, paths)
    assert table_state(spark, paths.table("raw_topic_snapshot")) is None


def test_a_lake_without_a_format_is_given_one(spark: SparkSession, lake: LakePaths) -> None:
    require_known_format(spark, lake)
    assert _told(spark, lake) is None
    for _ in range(2):
        note_format(spark, lake)
    assert _told(spark, lake) == str(LAKE_FORMAT)
    assert table_state(spark, lake.table("raw_topic_snapshot")).version == 1  # type: ignore[union-attr]
    require_known_format(spark, lake)


def test_a_lake_of_format_2_is_one_of_this_from_its_first_run_on(spark: SparkSession, lake: LakePaths) -> None:
    commit_metadata(
        spark, lake.table("raw_topic_snapshot"), Commit(lake.writer("format"), 2, {}), properties={_PROPERTY: "2"}
    )
    require_known_format(spark, lake)
    note_format(spark, lake)
    assert _told(spark, lake) == str(LAKE_FORMAT) == "3"


@pytest.mark.parametrize(("table", "column"), [("batches", "batch_id"), ("consistent_cuts", "cut_id")])
def test_a_lake_of_before_is_known_by_its_tables(table: str, column: str, spark: SparkSession, lake: LakePaths) -> None:
    spark.range(1).withColumnRenamed("id", column).write.format("delta").save(lake.table(table))
    with pytest.raises(LakeError, match="has format 1, this version of cdc_pipeline writes format 3"):
        require_known_format(spark, lake)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("1", "move all folders in there but raw_topic_snapshot away"),
        (str(LAKE_FORMAT + 1), f"has format {LAKE_FORMAT + 1}, which a newer version of cdc_pipeline has made"),
        ("two", "is 'two', a number is expected"),
    ],
)
def test_another_format_is_refused(told: str, said: str, spark: SparkSession, lake: LakePaths) -> None:
    commit_metadata(spark, lake.table("raw_topic_snapshot"), Commit("test", 1, {}), properties={_PROPERTY: told})
    with pytest.raises(LakeError, match=said):
        require_known_format(spark, lake)
