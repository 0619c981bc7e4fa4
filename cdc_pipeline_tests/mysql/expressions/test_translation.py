from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from cdc_pipeline.mysql.ddl.column_types import parse_mysql_type
from cdc_pipeline.mysql.ddl.parser import parse_ddl
from cdc_pipeline.mysql.expressions.translation import (
    MAX_MADE_BYTES,
    ExpressionError,
    Now,
    SparkExpression,
    ValueKind,
    translate,
    translate_assignment,
    translate_condition,
)
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.schema_changes import CreateTable
from cdc_pipeline.mysql.model.table import Column as TableColumn
from cdc_pipeline.mysql.model.table import TableSchema
from cdc_pipeline.mysql.types.spark_types import spark_type

_CASES = Path(__file__).parents[1] / "cases" / "expressions.yaml"
_TABLES: list[dict[str, Any]] = yaml.safe_load(_CASES.read_text(encoding="utf-8"))
_ANY = "*"
"""Matches any value."""


def _schema(columns: str) -> TableSchema:
    [change] = parse_ddl(f"create table t ({columns})", "db")
    assert isinstance(change, CreateTable)
    return change.schema


def _rows(spark: SparkSession, schema: TableSchema, rows: list[dict[str, Any]]) -> DataFrame:
    texts = [
        (place, *(None if row.get(name) is None else str(row[name]) for name in schema.column_names))
        for place, row in enumerate(rows)
    ]
    names = [f"c{place}" for place in range(len(schema.columns))]
    frame = spark.createDataFrame(texts, "place int, " + ", ".join(f"{name} string" for name in names))
    typed = []
    for name, column in zip(names, schema.columns, strict=True):
        target = spark_type(column.type)
        value = F.unhex(name) if target.simpleString() == "binary" else F.col(name).try_cast(target)
        typed.append(value.alias(column.name))
    return frame.select("place", *typed)


def _values(frame: DataFrame, expressions: list[SparkExpression]) -> DataFrame:
    """The value `e<n>` of each expression, and whether it is doubtful, `d<n>`."""
    columns = []
    for place, found in enumerate(expressions):
        columns += [F.expr(found.sql).alias(f"e{place}"), F.expr(found.doubtful or "false").alias(f"d{place}")]
    return frame.select("place", *columns)


def _texts(values: DataFrame) -> list[list[str | None]]:
    """Per expression its value in each row as text, `?` if it is doubtful."""
    texts = []
    for field in values.schema.fields:
        if field.name.startswith("e"):
            value = F.hex(field.name) if isinstance(field.dataType, BinaryType) else F.col(field.name).cast("string")
            texts.append(F.when(F.col("d" + field.name[1:]), "?").otherwise(value).alias(field.name))
    rows = values.sort("place").select(*texts).collect()
    return [[row[place] for row in rows] for place in range(len(texts))]


def _expected(values: list[Any], rows: int) -> list[str | None]:
    texts = [None if value is None else str(value) for value in values]
    return texts * rows if len(texts) == 1 else texts


def _now(table: dict[str, Any]) -> Now | None:
    return next((Now(table[key], key == "now") for key in ("now", "committed") if key in table), None)


def _translations(table: dict[str, Any]) -> tuple[list[str], list[SparkExpression], list[list[Any]]]:
    """The names of the cases of a table, their translations, and the expected values."""
    schema, zone, now = _schema(table["columns"]), table["zone"], _now(table)
    names, found, expected = [], [], []
    for text, *values in table["values"]:
        names.append(str(text))
        found.append(translate(str(text), schema, zone, now))
        expected.append(values)
    for text, kind, *values in table.get("assigned", []):
        names.append(f"{text} in {kind}")
        column = TableColumn("made", parse_mysql_type(kind))
        found.append(translate_assignment(str(text), column, schema, zone, now))
        expected.append(values)
    return names, found, expected


_TYPES = {
    ValueKind.INTEGER: (LongType(), DecimalType(20, 0)),
    ValueKind.DOUBLE: (DoubleType(),),
    ValueKind.TEXT: (StringType(),),
    ValueKind.BYTES: (BinaryType(),),
    ValueKind.DATE: (DateType(),),
    ValueKind.DATETIME: (TimestampNTZType(),),
    ValueKind.TIMESTAMP: (TimestampType(),),
    ValueKind.TIME: (StringType(),),
    ValueKind.JSON: (StringType(),),
    ValueKind.NULL: (NullType(),),
}


def _wrong_types(table: dict[str, Any], names: list[str], found: list[SparkExpression], values: DataFrame) -> list[str]:
    kinds = [kind for _, kind, *_ in table.get("assigned", [])]
    wrong = []
    for place, (name, expression) in enumerate(zip(names, found, strict=True)):
        actual = values.schema[f"e{place}"].dataType
        stored = place - len(found) + len(kinds)
        if stored >= 0:
            right = actual == spark_type(parse_mysql_type(kinds[stored]))
        elif expression.kind is ValueKind.DECIMAL:
            right = isinstance(actual, DecimalType)
        else:
            right = actual in _TYPES[expression.kind]
        if not right:
            wrong.append(f"{name}: {actual.simpleString()} for {expression.kind}")
    return wrong


@pytest.mark.parametrize("table", _TABLES, ids=lambda table: table["table"])
def test_values_equal_mysqls(table: dict[str, Any], spark: SparkSession) -> None:
    names, found, expected = _translations(table)
    frame = _rows(spark, _schema(table["columns"]), table["rows"])
    made = _values(frame, found)
    wrong = _wrong_types(table, names, found, made)
    texts = _texts(made)
    for name, got, values in zip(names, texts, expected, strict=True):
        wanted = _expected(values, len(table["rows"]))
        if [_ANY if value == _ANY else text for text, value in zip(got, wanted, strict=True)] != wanted:
            wrong.append(f"{name}: {got} is not {wanted}")
    assert not wrong, "\n".join(wrong)


_REFUSED = [(table, *map(str, case)) for table in _TABLES for case in table.get("refused", [])]


@pytest.mark.parametrize("case", _REFUSED, ids=lambda case: " in ".join(case[1:-1]))
def test_expressions_without_an_exact_translation_are_rejected(case: tuple[Any, ...]) -> None:
    table, text, *kinds, word = case
    schema, zone = _schema(table["columns"]), table["zone"]
    column = TableColumn("made", parse_mysql_type(kinds[0])) if kinds else None
    with pytest.raises(ExpressionError) as error:
        translate_assignment(text, column, schema, zone) if column else translate(text, schema, zone)
    assert word in str(error.value)


_EXTREMES = {
    "tinyint": [-128, 127, 0, -1],
    "smallint": [-32768, 32767, 0, 65],
    "int": [-(2**31), 2**31 - 1, 0, -1],
    "bigint": [-(2**63), 2**63 - 1, 0, -1],
    "float": ["-3.4028235E38", "3.4028235E38", "1.4E-45", "-0.0", "0.1"],
    "double": ["-1.7976931348623157E308", "1.7976931348623157E308", "4.9E-324", "-0.0", "9007199254740993"],
    "date": ["0001-01-01", "9999-12-31", "1582-10-15", "2000-02-29"],
    "timestamp_ntz": ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "1969-12-31 23:59:59.999999"],
    "timestamp": ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "1970-01-01 00:00:00"],
    "binary": ["", "00", "FF" * 300, "C3"],
    "string": [
        *("", " ", "\0", "'", '"', "\\", "😀" * 300, "99999999999999999999", "-9e999", "2024-02-30", "99:99:99", "-"),
        *("[" * 300, '{"k": ' * 200 + "1" + "}" * 200, '"' + '\\"' * 20_000 + '"', '{"a": "' + "x" * 50_000, '{"k"}'),
        *("[" * 50_000 + "]" * 50_000, '{"a": 1e999, "k": tru, "list": {}}', '"\\ud800"', '"\\u12"', "1999999-13-45"),
    ],
}
_TYPES_TO_STORE = [
    *("tinyint", "smallint unsigned", "bigint", "bigint unsigned", "bit(1)", "bit(64)", "year", "decimal(3,2)"),
    *(
        "decimal(38,30)",
        "float",
        "double unsigned",
        "date",
        "datetime(3)",
        "timestamp",
        "time(2)",
        "char(3)",
        "varchar(3)",
    ),
    *("text", "json", "binary(3)", "varbinary(3)", "blob", "enum('a','b')"),
]


def _extremes(kind: DataType) -> list[Any]:
    if isinstance(kind, DecimalType):
        most = f"{'9' * (kind.precision - kind.scale)}.{'9' * kind.scale}"
        return [most, "-" + most, "0", "1"]
    return _EXTREMES[kind.simpleString()]


@pytest.mark.parametrize("table", _TABLES, ids=lambda table: table["table"])
def test_no_row_fails_a_job(table: dict[str, Any], spark: SparkSession) -> None:
    schema, zone, now = _schema(table["columns"]), table["zone"], _now(table)
    _, found, _ = _translations(table)
    for column in schema.columns:
        for kind in _TYPES_TO_STORE:
            name = quoted(column.name)
            with contextlib.suppress(ExpressionError):
                found.append(translate_assignment(name, TableColumn("made", parse_mysql_type(kind)), schema, zone, now))
    values = {column.name: _extremes(spark_type(column.type)) for column in schema.columns}
    longest = max(map(len, values.values()))
    rows = [{name: some[place % len(some)] for name, some in values.items()} for place in range(longest)]
    made = _values(_rows(spark, schema, rows), found)
    doubts = [F.col(f"d{place}").isNull() for place in range(len(found))]
    [[_, unclear]] = made.select(
        F.max(F.hash(*made.columns)), F.max(F.array_contains(F.array(*doubts), True))
    ).collect()
    assert unclear is False, "a doubt is never NULL"


def test_a_condition_is_true_for_a_nonzero_value(spark: SparkSession) -> None:
    schema = _schema("i int, d decimal(3,1)")
    frame = _rows(spark, schema, [{"i": 2, "d": "0.1"}, {"i": 0, "d": "0.0"}, {}])
    found = [
        translate_condition(text, schema, "UTC") for text in ("i", "d", "i > 1", "NOT i", "NULL", "i IS NULL OR d > 5")
    ]
    assert _texts(_values(frame, found)) == [
        ["true", "false", None],
        ["true", "false", None],
        ["true", "false", None],
        ["false", "true", None],
        [None, None, None],
        ["false", "false", "true"],
    ]


def test_column_names_that_look_like_keywords_or_functions(spark: SparkSession) -> None:
    schema = _schema("`year` int, `NULL` int, `x``.``y` int, `date` date")
    frame = _rows(spark, schema, [{"year": 1, "NULL": 2, "x`.`y": 3, "date": "2024-05-06"}])
    texts = ("year + `null` * `x``.``y`", "t.year", "YEAR(date)")
    found = [translate(text, schema, "UTC") for text in texts]
    assert _texts(_values(frame, found)) == [["7"], ["1"], ["2024"]]


def test_an_unknown_zone_is_rejected() -> None:
    with pytest.raises(ExpressionError, match="is not an IANA time zone"):
        translate("1", _schema("i int"), "Moon/Base")


@pytest.mark.parametrize("definition", ["int as (a + 1)", "int as (`A` + 1) stored", "int default (a + 1)"])
def test_the_own_expression_of_a_column_cannot_read_it(definition: str) -> None:
    schema = _schema(f"b int, a {definition}")
    own = schema.columns[1]
    expression = own.expression or (own.default and own.default.value)
    assert expression is not None
    with pytest.raises(ExpressionError, match="a depends on itself"):
        translate_assignment(expression, own, schema, "UTC")
    # a change of its type reads its values before that
    assert translate_assignment("`a`", own, schema, "UTC")


@pytest.mark.parametrize("made", [1, 4])
def test_the_expressions_of_a_row_share_the_largest_size(made: int) -> None:
    # a column that cannot grow takes no share
    schema = _schema(
        "l longtext, v varchar(20), h text as (l)" + "".join(f", g{n} text as (concat(l, l))" for n in range(made))
    )
    limit = MAX_MADE_BYTES // made
    assert translate("concat(l, v)", schema, "UTC").sql.endswith(f"<= {limit} THEN concat(`l`, `v`) END")
    assert translate("concat(v, v)", schema, "UTC").doubtful is None
    many = _schema(", ".join(f"l{number} text" for number in range(101)))
    with pytest.raises(ExpressionError, match="long arguments of a function 101: at most 100"):
        translate(f"concat({', '.join(many.column_names)})", many, "UTC")


_NESTED = {
    "nullif": ("nullif({}, 1)", "i", ["2", None, None]),
    "greatest": ("greatest({}, 1)", "i", ["2", "1", None]),
    "between": ("({} BETWEEN 0 AND 1)", "i", None),
    "in": ("({} IN (0, 1, 2))", "i", None),
    "case": ("CASE {} WHEN 1 THEN 2 WHEN 2 THEN 1 ELSE 3 END", "i", None),
    "right": ("right({}, 3)", "s", ["abc", "", None]),
    "substring": ("substr('abcd', length({}))", "s", None),
    "seconds": ("time_to_sec(time(from_unixtime({})))", "i", ["2", "1", None]),
    "plus": ("({} + 1)", "i", None),
    "concat": ("concat({}, '')", "s", ["abc", "", None]),
}


def _nested(template: str, inner: str, levels: int) -> str:
    for _ in range(levels):
        inner = template.format(inner)
    return inner


@pytest.mark.parametrize("name", _NESTED)
def test_text_grows_linearly_with_levels(name: str) -> None:
    template, inner, _ = _NESTED[name]
    schema = _schema("i int, s varchar(9)")
    five, ten = (len(translate(_nested(template, inner, levels), schema, "UTC").sql) for levels in (5, 10))
    assert ten < 3 * five


def test_spark_analyzes_the_deepest_expression(spark: SparkSession) -> None:
    schema = _schema("i int, s varchar(9)")
    frame = _rows(spark, schema, [{"i": 2, "s": "abc"}, {"i": 1, "s": ""}, {}])
    for template, inner, values in _NESTED.values():
        for levels in (30, 15, 7):
            with contextlib.suppress(ExpressionError):
                found = translate(_nested(template, inner, levels), schema, "UTC")
                assert values in (None, *_texts(_values(frame, [found])))
                break
        else:
            raise AssertionError(template)
    found = translate(" + ".join(["i"] * 99), schema, "UTC")
    assert _texts(_values(frame, [found])) == [["198", "99", None]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" + ".join(["1"] * 200), "levels of the expression 101: at most 100"),
        ("1" + " " * 70_000, "characters of the expression 70,001: at most 65,535"),
        ("concat(" + ", ".join(["j ->> '$.a'"] * 60) + ")", "characters of the translation"),
        ("(" * 20_000 + "1" + ")" * 20_000, "the expression cannot be parsed"),
    ],
)
def test_too_large_expressions_are_rejected_with_their_size(text: str, words: str) -> None:
    with pytest.raises(ExpressionError, match=words):
        translate(text, _schema("j json"), "UTC")
