"""The order in which broken rules are reported. No `from __future__ import annotations`: Pandera evaluates them."""

import pandera.pyspark as pa
import pyspark.sql.types as T
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.contracts.checks import rule
from cdc_pipeline.contracts.rules import Rule, broken_rule, expectations, model_rules


class _Base(pa.DataFrameModel):  # type: ignore[type-arg]
    first: T.StringType = pa.Field(str_length={"min_value": 1})
    second: T.LongType = pa.Field(ge=0)

    first_fits_second = rule("first_fits_second", "second is the length of first", "length(first) = second")


class _Form(_Base):
    third: T.StringType = pa.Field(nullable=True, isin=["x"])

    third_is_first = rule("third_is_first", "third is the first letter", "third IS NULL OR first LIKE third || '%'")


_RULES = {"base": model_rules(_Base), "form": model_rules(_Form)}

# (form, first, second, third) → the reported rule
_CASES: dict[tuple[str | None, str | None, int | None, str | None], str | None] = {
    ("form", "xy", 2, "x"): None,
    ("form", "xy", 2, None): None,
    # missing fields first, then invalid ones, then rules over several fields
    ("form", "", None, "y"): "second.not_null",
    ("form", None, -1, "y"): "first.not_null",
    ("form", None, None, "y"): "first.not_null",
    ("form", "", -1, "y"): "first.str_length",
    ("form", "a", -1, "y"): "second.greater_than_or_equal_to",
    ("form", "a", 2, "y"): "third.isin",
    # rules of the base class before those of the form
    ("form", "a", 2, "x"): "first_fits_second",
    ("form", "a", 1, "x"): "third_is_first",
    # rules of other forms do not apply
    ("base", "a", 1, "y"): None,
    ("base", "a", 2, "x"): "first_fits_second",
    ("neither", None, None, "y"): None,
    (None, None, None, "y"): None,
}


def test_the_first_broken_rule(spark: "SparkSession") -> None:
    cases = list(_CASES)
    frame = spark.createDataFrame(
        [(place, *case) for place, case in enumerate(cases)],
        "place INT, form STRING, first STRING, second BIGINT, third STRING",
    )
    rows = frame.select("place", broken_rule(_RULES, F.col("form")).alias("rule")).collect()
    assert {cases[row["place"]]: row["rule"] for row in rows} == _CASES


def test_rules_in_the_models_order() -> None:
    assert [(found.name, found.field) for found in model_rules(_Form)] == [
        ("first.not_null", "first"),
        ("first.str_length", "first"),
        ("second.not_null", "second"),
        ("second.greater_than_or_equal_to", "second"),
        ("third.isin", "third"),
        ("first_fits_second", None),
        ("third_is_first", None),
    ]


def test_a_rule_of_the_base_is_the_same_rule() -> None:
    assert set(_RULES["base"]) < set(_RULES["form"])


def test_expectations() -> None:
    rules = {"a": (Rule("x.isin", "x is y", "true", "x"),), "b": (Rule("fits", "x fits y", "true"),)}
    assert expectations(rules) == {"x.isin": ("x is y", "x"), "fits": ("x fits y", None)}
