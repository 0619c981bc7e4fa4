"""Compares the mirrors of a lake with a story."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.gaps import gap_texts
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.stories import Story, Table

PARTITIONS = (0, 1, 2)


def assert_ingested(spark: SparkSession, lake: LakePaths, story: Story) -> None:
    for table, expected in story.tables.items():
        assert_mirror(spark, lake, TableName("db", table), expected)


def assert_mirror(spark: SparkSession, lake: LakePaths, name: TableName, expected: Table | None) -> None:
    """The mirror has the expected columns, rows, and gaps or none. `expected` None: there is no mirror."""
    path = published_cut(Lake(spark, lake)).mirror_folder(name, lake)
    state = table_state(spark, path)
    if expected is None:
        assert state is None, name
        return
    assert state is not None, name
    mirror = spark.read.format("delta").load(path)
    columns = [column for column in mirror.columns if not column.startswith("_")]
    assert tuple(columns) == expected.columns, name
    rows = mirror.select(*(F.col(quoted(column)).cast("string") for column in columns)).collect()
    assert sorted(map(tuple, rows), key=str) == sorted(expected.rows, key=str), name
    gaps = gap_texts(MirrorState.from_properties(state.properties).gaps)
    assert bool(gaps) == expected.gaps, gaps
