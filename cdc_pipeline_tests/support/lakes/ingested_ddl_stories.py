"""The slices of the DDL stories, and the comparison of mirrors with such a story."""

from __future__ import annotations

from pyspark.sql import SparkSession

from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.ddl_stories import DdlStory
from cdc_pipeline_tests.support.lakes.ingested_stories import assert_mirror

SLICES = {"first": 10, "second": 100}


def assert_ingested(spark: SparkSession, lake: LakePaths, story: DdlStory) -> None:
    for full_name, expected in story.tables.items():
        assert_mirror(spark, lake, TableName(*full_name.split(".")), expected)
