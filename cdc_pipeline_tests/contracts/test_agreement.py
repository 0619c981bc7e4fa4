"""Pandera and the SQL derived from the same model say the same of every row.

What each row breaks is proved row by row with the derived SQL. A validation by Pandera takes about a second, so it is
done as group testing: the rules of a model are numbered, and the frame of each binary digit holds the bad rows of the
rules whose number has that digit. No two rules are in the same frames, so that Pandera cannot find the right rules in
all of them by taking one rule for another. Random rows come on top.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pyspark.sql import functions as F

from cdc_pipeline.contracts.rules import rules_of
from cdc_pipeline.contracts.tables import TABLES
from cdc_pipeline.contracts.validation import failed_rules
from cdc_pipeline.dialects.decode import DIALECTS
from cdc_pipeline_tests.contracts.cases import CASES, Cases, Fields, Model, frame_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RANDOM_ROWS = 300
_MOST_CHANGES = 4


class _Rows(NamedTuple):
    """A model's rows in one frame, numbered by `_case`: the good ones, the bad ones, the random ones."""

    frame: DataFrame
    good: range
    bad: range
    random: range


def _random_rows(model: Model, cases: Cases) -> list[Fields]:
    """Rows that keep all rules but for some fields; a third of the fields is right in every row."""
    source = random.Random(model.__name__)
    fields = [name for name in cases.base if source.random() < 2 / 3]
    starts = cases.good_rows()
    rows = []
    for _ in range(_RANDOM_ROWS):
        changed = source.sample(fields, min(source.randint(0, _MOST_CHANGES), len(fields)))
        rows.append({**source.choice(starts), **{name: source.choice(cases.values(name)) for name in changed}})
    return rows


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> dict[Model, _Rows]:
    found = {}
    for model, cases in CASES.items():
        good, bad = cases.good_rows(), [row for row, _ in cases.bad_rows(model)]
        rows = [*good, *bad, *_random_rows(model, cases)]
        ends = (len(good), len(good) + len(bad), len(rows))
        found[model] = _Rows(
            frame_of(spark, model, rows), range(ends[0]), range(ends[0], ends[1]), range(ends[1], ends[2])
        )
    return found


def _flagged(frame: DataFrame, model: Model) -> dict[int, frozenset[str]]:
    """The rules that each row breaks, by the derived SQL."""
    broken = F.array(*(F.when(~F.expr(rule.kept), F.lit(rule.name)) for rule in rules_of(model)))
    rows = frame.select("_case", F.array_compact(broken).alias("broken")).collect()
    return {row["_case"]: frozenset(row["broken"]) for row in rows}


_MODELS = pytest.mark.parametrize("model", CASES, ids=lambda model: model.__name__)


def test_every_contract_has_cases() -> None:
    assert set(CASES) == {form.contract for dialect in DIALECTS for form in dialect.forms} | set(TABLES.values())


@_MODELS
def test_every_rule_has_a_row_that_breaks_it(model: Model) -> None:
    cases = CASES[model]
    # each row has its own rule, and may break others too
    assert {name for _, broken in cases.bad_rows(model) for name in broken} == {rule.name for rule in rules_of(model)}
    alone = {next(iter(broken)) for _, broken in cases.bad_rows(model) if len(broken) == 1}
    assert {rule.name for rule in rules_of(model)} - alone == set(cases.also)
    assert set(cases.base) == set(model.to_schema().columns)


@_MODELS
def test_the_derived_sql_flags_what_a_row_breaks_and_nothing_else(model: Model, frames: dict[Model, _Rows]) -> None:
    rows = frames[model]
    flagged = _flagged(rows.frame, model)
    assert {place: flagged[place] for place in rows.good if flagged[place]} == {}
    wanted = dict(zip(rows.bad, CASES[model].bad_rows(model), strict=True))
    assert [(row, flagged[place]) for place, (row, broken) in wanted.items() if flagged[place] != broken] == []


@_MODELS
def test_pandera_finds_the_rules_that_the_derived_sql_flags(model: Model, frames: dict[Model, _Rows]) -> None:
    rows = frames[model]
    flagged = _flagged(rows.frame, model)
    numbers = {rule.name: number for number, rule in enumerate(rules_of(model), start=1)}
    # a row that breaks several rules is in the frames of the first one's number
    number_of = {place: min(numbers[name] for name in flagged[place]) for place in rows.bad if flagged[place]}
    groups = {
        f"digit {digit}": [*rows.good, *(place for place, number in number_of.items() if number >> digit & 1)]
        for digit in range(len(numbers).bit_length())
    }
    groups["random"] = list(rows.random)
    found, wanted = {}, {}
    for name, places in groups.items():
        found[name] = set(failed_rules(rows.frame.where(F.col("_case").isin(places)), model))
        wanted[name] = {rule for place in places for rule in flagged[place]}
    assert found == wanted
    # the random rows say something of the rules only where some are broken and some are not; those of one field are so
    # together
    if len({rule.field for rule in rules_of(model)}) > 1:
        assert 0 < len(wanted["random"]) < len(numbers)
