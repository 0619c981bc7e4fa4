"""Pandera's checks and the SQL derived from them agree on every row.

The derived SQL is tested row by row. A validation by Pandera takes about a second, so Pandera is tested by group testing:
the rules of a model are numbered, and there is one frame per binary digit, with the bad rows of the rules whose number has
that digit. No two rules are in the same set of frames, so a rule that is reported instead of another fails the test. Random
rows are tested in one more frame.

Contracts of complete messages are tested only for the rules that they add.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, NamedTuple

import pandera.pyspark as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.contracts.rules import Rule, failed_rules, find_breaches, model_rules
from cdc_pipeline.contracts.tables import TABLES
from cdc_pipeline.dialects.traits import DIALECTS
from cdc_pipeline_tests.contracts.cases import CASES, Cases, Fields, Model, frame_of
from cdc_pipeline_tests.contracts.sent_cases import SENT_CASES, SENT_OF

_ALL = {**CASES, **SENT_CASES}
_RANDOM_ROWS = 300
_MOST_CHANGES = 4


class _Rows(NamedTuple):
    """The good, bad and random rows of a model in one frame, numbered by `_case`."""

    frame: DataFrame
    good: range
    bad: range
    random: range


def _random_rows(model: Model, cases: Cases) -> list[Fields]:
    """Good rows with up to 4 changed fields; a third of the fields is never changed."""
    source = random.Random(model.__name__)
    fields = [name for name in cases.base if source.random() < 2 / 3]
    starts = cases.good_rows()
    rows = []
    for _ in range(_RANDOM_ROWS):
        changed = source.sample(fields, min(source.randint(0, _MOST_CHANGES), len(fields)))
        rows.append({**source.choice(starts), **{name: source.choice(cases.values(name)) for name in changed}})
    return rows


def _schema_of(model: Model, rules: list[str]) -> Any:
    """The model's schema, without the rules of fields if `rules` has none: Pandera runs a Spark job for each check."""
    schema = model.to_schema()
    if any("." in name for name in rules):
        return schema
    columns = {name: pa.Column(field.dtype, nullable=True) for name, field in schema.columns.items()}
    return pa.DataFrameSchema(columns=columns, checks=[check for check in schema.checks if check.name in rules])


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> dict[Model, _Rows]:
    found = {}
    for model, cases in _ALL.items():
        good, bad = cases.good_rows(), [row for row, _ in cases.bad_rows(_own_rules(model))]
        rows = [*good, *bad, *_random_rows(model, cases)]
        ends = (len(good), len(good) + len(bad), len(rows))
        found[model] = _Rows(
            frame_of(spark, model, rows), range(ends[0]), range(ends[0], ends[1]), range(ends[1], ends[2])
        )
    return found


def _flagged(frame: DataFrame, model: Model) -> dict[int, frozenset[str]]:
    """The rules that each row breaks, by the derived SQL."""
    broken = F.array(*(F.when(~F.expr(rule.condition), F.lit(rule.name)) for rule in model_rules(model)))
    rows = frame.select("_case", F.array_compact(broken).alias("broken")).collect()
    return {row["_case"]: frozenset(row["broken"]) for row in rows}


def _own_rules(model: Model) -> tuple[Rule, ...]:
    """The model's rules without those that it inherits from the contract of decoded fields."""
    others = set(model_rules(SENT_OF[model])) if model in SENT_OF else set()
    return tuple(rule for rule in model_rules(model) if rule not in others)


_MODELS = pytest.mark.parametrize("model", _ALL, ids=lambda model: model.__name__)


def test_every_contract_has_cases() -> None:
    forms = [form for dialect in DIALECTS for form in dialect.forms]
    assert set(CASES) == {form.contract for form in forms} | set(TABLES.values())
    assert {(form.complete_contract, form.contract) for form in forms if form.complete_contract is not None} == set(
        SENT_OF.items()
    )
    assert set(SENT_CASES) == set(SENT_OF)


@_MODELS
def test_every_rule_has_a_row_that_breaks_it(model: Model) -> None:
    cases, rules = _ALL[model], _own_rules(model)
    # each row belongs to one rule, and may break others too
    assert {name for _, broken in cases.bad_rows(rules) for name in broken} == {rule.name for rule in rules}
    alone = {next(iter(broken)) for _, broken in cases.bad_rows(rules) if len(broken) == 1}
    assert {rule.name for rule in rules} - alone == set(cases.also)
    assert set(cases.base) == set(model.to_schema().columns)


@_MODELS
def test_the_derived_sql_flags_what_a_row_breaks_and_nothing_else(model: Model, frames: dict[Model, _Rows]) -> None:
    rows = frames[model]
    flagged = _flagged(rows.frame, model)
    assert {place: flagged[place] for place in rows.good if flagged[place]} == {}
    wanted = dict(zip(rows.bad, _ALL[model].bad_rows(_own_rules(model)), strict=True))
    assert [(row, flagged[place]) for place, (row, broken) in wanted.items() if flagged[place] != broken] == []


def _leaving_a_rule(places: range, flagged: dict[int, frozenset[str]], own: list[str]) -> list[int]:
    """Random rows, as many as possible, that together keep at least one rule (of several): it must not be reported."""
    found, left = [], set(own)
    for place in places:
        if len(own) == 1 or left - flagged[place]:
            left -= flagged[place]
            found.append(place)
    return found


@_MODELS
def test_pandera_finds_the_rules_that_the_derived_sql_flags(model: Model, frames: dict[Model, _Rows]) -> None:
    rows = frames[model]
    flagged = _flagged(rows.frame, model)
    own = [rule.name for rule in _own_rules(model)]
    numbers = {name: number for number, name in enumerate(own, start=1)}
    # a row that breaks several rules is in the frames of the first one's number
    number_of = {
        place: min(numbers[name] for name in broken) for place in rows.bad if (broken := flagged[place] & set(own))
    }
    groups = {
        f"digit {digit}": [*rows.good, *(place for place, number in number_of.items() if number >> digit & 1)]
        for digit in range(len(numbers).bit_length())
    }
    groups["random"] = _leaving_a_rule(rows.random, flagged, own)
    found, wanted, schema = {}, {}, _schema_of(model, own)
    for name, places in groups.items():
        found[name] = set(failed_rules(rows.frame.where(F.col("_case").isin(places)), schema)) & set(own)
        wanted[name] = {rule for place in places for rule in flagged[place]} & set(own)
    assert found == wanted
    # a test needs broken and kept rules among the random rows; rules of a single field are broken together
    if len(own) > 1 and len({rule.field for rule in model_rules(model)}) > 1:
        assert 0 < len(wanted["random"]) < len(numbers)


@_MODELS
def test_what_is_found_at_run_time_is_that(model: Model, frames: dict[Model, _Rows]) -> None:
    """At run time one query evaluates all rules of the model."""
    rows = frames[model]
    flagged = _flagged(rows.frame, model)
    place = {"topic": F.lit("t"), "partition": F.lit(0), "offset": F.col("_case").cast("bigint")}
    own = model.to_schema().columns
    frame = rows.frame.withColumns({name: column for name, column in place.items() if name not in own})
    found = {breach.rule: breach.count for breach in find_breaches(frame, model)}
    wanted = Counter(rule for broken in flagged.values() for rule in broken)
    assert found == dict(wanted)
