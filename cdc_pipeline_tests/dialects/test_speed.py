"""Properties of Spark's plans that keep decoding fast, and very long values."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.contracts.json_text import END_MARK
from cdc_pipeline.dialects import unified
from cdc_pipeline.dialects.counts import ObservedFrame
from cdc_pipeline.dialects.decode import decode
from cdc_pipeline.dialects.envelope import parse_records
from cdc_pipeline.sources.records import HEADERS
from cdc_pipeline_tests.support.dialect_cases import RAW
from cdc_pipeline_tests.support.messages import row

_SHOWN_FIELDS = "spark.sql.debug.maxToStringFields"
_PARSE = f"StructField({END_MARK},BooleanType,true)"


@pytest.fixture(scope="module")
def changes(spark: SparkSession, as_in_production: None) -> DataFrame:  # noqa: ARG001 - compiled
    """Decoding as in production, over records that the optimizer cannot evaluate."""
    kept = [field for field in RAW if field.name != "headers"]
    columns = [F.col("id").cast("string").cast(field.dataType).alias(field.name) for field in kept]
    records = spark.range(1).select(*columns, F.lit(None).cast(HEADERS).alias("headers"))
    return unified.row_changes(ObservedFrame(decode(records)).frame)


@pytest.mark.core(10)
def test_decoding_is_compiled(changes: DataFrame) -> None:
    """The JVM does not compile methods of more than 8,000 bytes, which halves the speed of decoding."""
    plan = changes._jdf.queryExecution().debug().codegenToSeq()
    sizes = [int(size) for size in re.findall(r"ByteCodeStats\((\d+),", plan.toString())]
    assert sizes
    assert max(sizes) < 8000


def test_each_message_is_parsed_once(changes: DataFrame) -> None:
    """A filter that Spark moves below the parse repeats the parse for every field in the filter."""
    plan = changes._jdf.queryExecution().optimizedPlan()
    # print the schema of the parse without truncation
    changes.sparkSession.conf.set(_SHOWN_FIELDS, 10_000)
    lines = plan.toString().splitlines()
    changes.sparkSession.conf.unset(_SHOWN_FIELDS)
    parses = {line: line.count(_PARSE) for line in lines if _PARSE in line}
    assert list(parses.values()) == [1], parses
    assert re.match(r"[ +:-]*Project \[", next(iter(parses)))


def test_a_long_value_is_whole(spark: SparkSession) -> None:
    """Longer than 20 million characters, the default limit of the JSON parser."""
    size = 20_000_100
    head, tail = row("INSERT", "t", 1, {"a": "HERE"}).split("HERE")
    value = F.concat(F.lit(head), F.repeat(F.lit("x"), size), F.lit("END" + tail)).cast("binary")
    text = F.col("data")[0]["a"]
    frame = parse_records(spark.range(1).select(value.alias("value")))
    assert frame.select(F.length(text), F.substring(text, size, 9)).collect() == [(size + 3, "xEND")]
