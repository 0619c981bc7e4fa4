"""Which expressions Spark does not compute alike in each run. What `test_sql_expressions.py` refuses is not here."""

from __future__ import annotations

import contextlib

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column

from cdc_pipeline.spark.jvm import jvm, nondeterminism
from cdc_pipeline.spark.sql_expressions import parse_spark_expression

_TIME = "depends on the current time"
_SESSION = "depends on the current time, user or session"
_MANY_ROWS = "is an aggregate, a window function or a generator"
_CHANCE = "is not deterministic"
_UDF = "calls a user-defined function"

# reason → expressions, separated by |
_CASES = {
    None: """
        1 | a + 1 | upper(v) | transform(l, x -> x + a) | nullif(a, 1) | a between 1 and 2 | named_struct('x', a).x |
        unix_timestamp(v) | to_date(v) | v > 'today' | date '2026-01-02' - d | timestampadd(day, 1, t) |
        convert_timezone('UTC', 'Asia/Tokyo', t) | cast(variant_get(parse_json(v), '$.x', 'int') as string) |
        xpath_string(v, 'a/b') | get_json_object(v, '$.x') | to_json(from_csv(v, 'x int'))""",
    _TIME: """
        to_date('today') | to_date(concat('to', 'day')) | t = 'now' | date_add('today', a) | timestamp('now')""",
    _SESSION: """
        now() | current_timestamp | current_timestamp() | current_date | curdate() | localtimestamp() | current_user |
        current_user() | user() | session_user() | current_catalog() | current_database() | current_timezone() |
        convert_timezone('UTC', t) | unix_timestamp() | to_unix_timestamp(now()) |
        transform(l, x -> x + unix_timestamp())""",
    _CHANCE: """
        rand() | `rand` () | rand(3) | randn() | random() | uuid() | shuffle(l) | randstr(3) | uniform(1, 9) |
        if(a > 1, a, rand()) | transform(l, x -> x + rand()) | monotonically_increasing_id() | spark_partition_id() |
        input_file_name() | input_file_block_start() | java_method('java.util.UUID', 'randomUUID') |
        try_reflect('java.util.UUID', 'randomUUID')""",
    _MANY_ROWS: """
        sum(a) | count(a) | max_by(a, v) | listagg(v) | collect_list(a) | row_number() over (order by a) |
        sum(a) over () | explode(l) | stack(2, a, a) | window(t, '1 day') | session_window(t, '1 day') | of_sql(a)""",
    _UDF: "of_python(v)",
}


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    session = spark.newSession()
    session.udf.register("of_python", lambda v: v)
    session.sql("CREATE TEMPORARY FUNCTION of_sql(x INT) RETURNS INT RETURN x + 1")
    empty = session.sparkContext.emptyRDD()
    return session.createDataFrame(empty, "a int, v string, l array<int>, d date, t timestamp")


@pytest.mark.parametrize("reason", _CASES)
def test_what_depends_on_more_than_the_row(frame: DataFrame, reason: str | None) -> None:
    texts = [text.strip() for text in _CASES[reason].split("|")]
    assert [parse_spark_expression(text).text for text in texts] == texts
    assert {text: nondeterminism(frame.select(F.expr(text))) for text in texts} == dict.fromkeys(texts, reason)
    if reason != _MANY_ROWS:
        deep = {text: nondeterminism(frame.select(F.expr(f"try_cast(array({text})[0] as string)"))) for text in texts}
        assert deep == dict.fromkeys(texts, reason)


def test_what_has_no_function_name(frame: DataFrame) -> None:
    assert nondeterminism(frame.select(F.expr("a in (select 1)"))) == "contains a subquery"
    java_udf = jvm(frame.sparkSession).org.apache.spark.ml.functions.array_to_vector(F.col("l")._jc)  # type: ignore[attr-defined]
    assert nondeterminism(frame.select(Column(java_udf))) == _UDF


def test_what_spark_cannot_analyze(frame: DataFrame) -> None:
    for text in ("my_udf(a)", "lag(a)", "grouping(a)", "upper(array(explode(l)))", "b + 1"):
        with pytest.raises(AnalysisException):
            frame.select(F.expr(text))
    # Spark 4.2 knows functions by their full names
    with contextlib.suppress(AnalysisException):
        assert nondeterminism(frame.select(F.expr("system.builtin.rand()"))) == "is not deterministic"


def test_it_starts_no_job(frame: DataFrame) -> None:
    context = frame.sparkSession.sparkContext
    context.setJobGroup("determinism", "")
    try:
        assert nondeterminism(frame.select(F.expr("a + to_date('today')"))) == _TIME
        assert context.statusTracker().getJobIdsForGroup("determinism") == []
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
