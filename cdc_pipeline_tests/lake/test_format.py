"""The format version of a lake: it is stored, and a lake of another format is rejected."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import Commit, commit_metadata, table_state
from cdc_pipeline.lake.format import LAKE_FORMAT, require_known_format, store_format
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths

_PROPERTY = "cdc.lake_format"


@pytest.fixture
def lake(spark: SparkSession, paths: LakePaths) -> LakePaths:
    """A lake as left by a run that is killed right after its first commit."""
    spark.range(1).write.format("delta").save(paths.table("raw_topic_snapshot"))
    return paths


def _set_format(spark: SparkSession, lake: LakePaths, number: str) -> None:
    commit_metadata(spark, lake.table("raw_topic_snapshot"), Commit("test", 1, {}), properties={_PROPERTY: number})


def _stored(spark: SparkSession, lake: LakePaths) -> str | None:
    state = table_state(spark, lake.table("raw_topic_snapshot"))
    assert state is not None
    return state.properties.get(_PROPERTY)


def test_a_lake_that_is_not_there_yet_passes(spark: SparkSession, paths: LakePaths) -> None:
    require_known_format(Lake(spark, paths))
    store_format(Lake(spark, paths))
    assert table_state(spark, paths.table("raw_topic_snapshot")) is None


def test_a_new_lake_is_given_the_format_once(spark: SparkSession, lake: LakePaths) -> None:
    require_known_format(Lake(spark, lake))
    assert _stored(spark, lake) is None
    for _ in range(2):
        store_format(Lake(spark, lake))
    assert _stored(spark, lake) == str(LAKE_FORMAT) == "2"
    assert table_state(spark, lake.table("raw_topic_snapshot")).version == 1  # type: ignore[union-attr]
    spark.range(1).write.format("delta").save(lake.table("batches"))
    require_known_format(Lake(spark, lake))


@pytest.mark.parametrize("number", [None, "1", "3", "one"])
@pytest.mark.parametrize("table", ["change_log", "consistent_cuts"])
def test_another_format_is_refused(number: str | None, table: str, spark: SparkSession, lake: LakePaths) -> None:
    spark.range(1).write.format("delta").save(lake.table(table))
    if number is not None:
        _set_format(spark, lake, number)
    with pytest.raises(LakeError) as caught:
        require_known_format(Lake(spark, lake))
    said = str(caught.value)
    assert f"the lake has format {number or 'unknown'}, this version of cdc_pipeline reads and writes format 2." in said
    assert f"move all folders but raw_topic_snapshot out of {lake.home}, then start a run" in said


def test_raw_records_of_another_format_are_taken_over(spark: SparkSession, lake: LakePaths) -> None:
    """A lake with raw records only accepts any format, and gets the present one."""
    store_format(Lake(spark, lake))
    _set_format(spark, lake, "1")
    require_known_format(Lake(spark, lake))
    store_format(Lake(spark, lake))
    assert _stored(spark, lake) == str(LAKE_FORMAT)
