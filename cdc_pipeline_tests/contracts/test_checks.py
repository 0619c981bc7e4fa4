"""Models accept only checks with SQL. No `from __future__ import annotations`: Pandera evaluates them."""

from itertools import zip_longest
from typing import Any

import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.contracts.checks import ContractError, check_text, rule
from cdc_pipeline.contracts.rules import failed_rules, model_rules
from cdc_pipeline_tests.contracts.cases import frame_of


class _UnknownCheck(pa.DataFrameModel):  # type: ignore[type-arg]
    name: T.StringType = pa.Field(str_matches="^a")


class _FrameCheckOfItsOwn(pa.DataFrameModel):  # type: ignore[type-arg]
    name: T.StringType = pa.Field()

    @pa.dataframe_check
    def has_rows(cls, frame: "DataFrame") -> bool:  # type: ignore[misc]  # noqa: N805  # Pandera makes it a class method
        return frame.count() > 0


class _QuotedValue(pa.DataFrameModel):  # type: ignore[type-arg]
    name: T.StringType = pa.Field(isin=["plain", "it's"])


class _BackslashValue(pa.DataFrameModel):  # type: ignore[type-arg]
    name: T.StringType = pa.Field(isin=["a\\b"])


_REFUSED = {
    _UnknownCheck: "check 'str_matches'",
    _FrameCheckOfItsOwn: "check 'has_rows' of a whole frame",
    _QuotedValue: "it's",
    _BackslashValue: "quotes or backslashes",
}


@pytest.mark.parametrize(("model", "message"), _REFUSED.items(), ids=lambda item: getattr(item, "__name__", ""))
def test_a_check_without_sql_is_refused(model: "type[pa.DataFrameModel[Any]]", message: str) -> None:
    with pytest.raises(ContractError, match=message):
        model_rules(model)


def test_a_check_without_words_is_refused() -> None:
    with pytest.raises(ContractError, match="str_matches"):
        check_text("str_matches", {})


class _AllChecks(pa.DataFrameModel):  # type: ignore[type-arg]
    """Each known check with each of its arguments, on fields whose names need quotes."""

    word: T.StringType = pa.Field(nullable=True, isin=["a", "B"], alias="a word")
    closed: T.LongType = pa.Field(nullable=True, in_range={"min_value": -1, "max_value": 3})
    open_range: T.IntegerType = pa.Field(
        nullable=True,
        in_range={"min_value": -1, "max_value": 3, "include_min": False, "include_max": False},
    )
    least: T.LongType = pa.Field(nullable=True, ge=2)
    long_enough: T.StringType = pa.Field(nullable=True, str_length={"min_value": 2})
    short_enough: T.StringType = pa.Field(nullable=True, str_length={"max_value": 2})
    between: T.StringType = pa.Field(nullable=True, str_length={"min_value": 1, "max_value": 2})

    fits = rule("fits", "closed is below least", "coalesce(closed < least, true)")


_VALUES: dict[str, tuple[Any, ...]] = {
    "a word": ("a", "B", "b", "", "a "),
    "closed": (-2, -1, 0, 3, 4, 2**63 - 3),
    "open_range": (-2, -1, 0, 2, 3, 4),
    "least": (-(2**63), 1, 2, 3),
    "long_enough": ("", "a", "é", "😀", "ab"),
    "short_enough": ("", "ab", "éé", "😀😀", "abc"),
    "between": ("", "a", "😀😀", "abc"),
}


def test_each_known_check_is_what_pandera_takes_it_for(spark: "SparkSession") -> None:
    """The derived SQL flags a value where Pandera does. A null keeps every check."""
    rows = [dict.fromkeys(_AllChecks.to_schema().columns)]
    rows += [{**rows[0], name: value} for name, values in _VALUES.items() for value in values]
    frame = frame_of(spark, _AllChecks, rows)
    kept = frame.selectExpr(*(f"{found.condition} AS `{found.name}`" for found in model_rules(_AllChecks))).collect()
    flagged = [{name for name, keeps in row.asDict().items() if not keeps} for row in kept]
    assert flagged[0] == set()
    fields = {name: [place for place, row in enumerate(rows) if row[name] is not None] for name in _VALUES}
    # at most one bad row per field in a frame: Pandera reports fields, not rows
    bad = zip_longest(*([place for place in places if flagged[place]] for places in fields.values()))
    groups = [[place for place, broken in enumerate(flagged) if not broken]]
    groups += [[place for place in places if place is not None] for places in bad]
    assert len(groups) > 3
    assert sorted(place for places in groups for place in places) == list(range(len(rows)))
    for places in groups:
        found = failed_rules(frame.where(F.col("_case").isin(places)), _AllChecks.to_schema())
        assert set(found) == {name for place in places for name in flagged[place]}


_WORDS = {
    "a word.isin": "a word is one of a, B",
    "closed.in_range": "closed is between -1 and 3",
    "least.greater_than_or_equal_to": "least is at least 2",
    "long_enough.str_length": "long_enough is not empty",
    "fits": "closed is below least",
}


def test_rules_say_in_words_what_they_expect() -> None:
    found = {found.name: found.expected for found in model_rules(_AllChecks)}
    assert {name: found[name] for name in _WORDS} == _WORDS
