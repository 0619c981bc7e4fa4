"""Retention of the broker keeps the CREATE TABLE in a quiet partition, and removes the first rows from a busy one."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from cdc_pipeline_tests.support.lakes.stories import change, create, put
from cdc_pipeline_tests.support.lakes.stream import Stream


def test_tables_that_are_older_than_a_partition_have_a_gap(spark: SparkSession, tmp_path: Path) -> None:
    stream, whole = Stream(spark, tmp_path / "cut"), Stream(spark, tmp_path / "whole")
    stream.topic.offsets[1] = 5000
    for one in (stream, whole):
        one.write_slice(
            20,
            *(create(table, 1) for table in ("older", "former", "emptied")),
            *(put(table, 10, "2", "b") for table in ("older", "emptied")),
            change("RENAME TABLE former TO present", 11),
            change("TRUNCATE TABLE emptied", 12),
            create("newer", 12),
            put("newer", 13, "1", "a"),
        )
        one.run()
    stream.write_slice(30, put("newer", 23, "2", "b"))
    stream.run()
    gaps = {mirror["table"]: mirror["gaps"] for mirror in stream.cuts()[-1]["mirrors"]}
    named = "partitions of its topic begin after the table (1): earlier rows may have expired in the broker"
    assert gaps == {"older": [named], "present": [named], "emptied": [], "newer": []}
    assert all(not mirror["gaps"] for mirror in whole.cuts()[-1]["mirrors"])
