"""A question about a table is asked again when the table or the arguments change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.recent_answers import RecentAnswers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_pipeline.lake.paths import LakePaths


def test_each_version_is_asked_once(spark: SparkSession, paths: LakePaths) -> None:
    lake, recent, asked = Lake(spark, paths), RecentAnswers(), list[object]()

    def count(arguments: object = None) -> int:
        def rows() -> int:
            asked.append(arguments)
            table = lake.read_if_exists("batches")
            return 0 if table is None else table.count()

        return recent.ask(lake, "batches", rows, arguments)

    assert [count(), count()] == [0, 0]
    spark.range(3).write.format("delta").save(paths.table("batches"))
    assert [count(), count(), count("more"), count("more")] == [3, 3, 3, 3]
    spark.range(2).write.format("delta").mode("append").save(paths.table("batches"))
    assert count("more") == 5
    assert asked == [None, None, "more", "more"]


def test_questions_are_kept_apart(spark: SparkSession, paths: LakePaths) -> None:
    lake, recent = Lake(spark, paths), RecentAnswers()

    def one() -> int:
        return 1

    def two() -> int:
        return 2

    assert [recent.ask(lake, "batches", one), recent.ask(lake, "batches", two)] == [1, 2]
