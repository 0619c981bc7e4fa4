from __future__ import annotations

from datetime import datetime, timezone

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.contracts.rules import Breach, failed_rules, find_breaches
from cdc_pipeline.contracts.tables import DeadLetter, WatermarkRow
from cdc_pipeline_tests.contracts.cases import ES, TSO, frame_of

_PLACE = {"batch_id": 1, "topic": "a b", "partition": 3, "timestamp": datetime(2026, 1, 1, tzinfo=timezone.utc)}
_LETTER = {**_PLACE, "offset": 5, "rule": "r", "reason": "x"}


def test_breaches_have_a_count_and_some_examples(spark: SparkSession) -> None:
    good = [{**_PLACE, "offset": offset, "watermark_ts": TSO, "es": ES} for offset in range(3)]
    bad = [{**row, "offset": offset, "es": ES + 1} for offset, row in enumerate(good * 3, start=10)]
    bad.append({**good[0], "offset": -1})
    found = find_breaches(frame_of(spark, WatermarkRow, good + bad), WatermarkRow)
    assert found == (
        Breach("offset.greater_than_or_equal_to", "offset is at least 0", 1, ("a b/3@-1",)),
        Breach(
            "tso_is_es",
            "the physical time of watermark_ts equals es",
            9,
            tuple(f"a b/3@{offset}" for offset in range(10, 15)),
            warn=True,
        ),
    )


def test_a_row_whose_place_is_not_known_is_counted(spark: SparkSession) -> None:
    (found,) = find_breaches(frame_of(spark, DeadLetter, [{**_LETTER, "topic": None}]), DeadLetter)
    assert (found.rule, found.count) == ("topic.not_null", 1)


def test_no_breach(spark: SparkSession) -> None:
    assert find_breaches(frame_of(spark, DeadLetter, [_LETTER]), DeadLetter) == ()


def test_a_missing_field_and_one_of_another_type_are_reported_alone(spark: SparkSession) -> None:
    """No other rule can be evaluated: the empty `rule` is not reported."""
    frame = frame_of(spark, DeadLetter, [{**_LETTER, "rule": ""}, {**_LETTER, "rule": ""}])
    other = frame.drop("reason").withColumn("offset", F.col("offset").cast("int"))
    assert find_breaches(other, DeadLetter) == tuple(
        Breach(name, "the field has the type of the contract", 2, ()) for name in ("offset.type", "reason.type")
    )


def test_types_that_differ(spark: SparkSession) -> None:
    frame = frame_of(spark, DeadLetter, [_LETTER])
    cases = {
        "topic.type": frame.withColumn("topic", F.col("topic").cast("binary")),
        "partition.type": frame.withColumn("partition", F.col("partition").cast("bigint")),
        "rule.type": frame.drop("rule"),
    }
    assert {name: failed_rules(other, DeadLetter.to_schema()) for name, other in cases.items()} == {
        name: (name,) for name in cases
    }
