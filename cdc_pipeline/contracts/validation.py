"""Pandera validation of frames: the rules of a contract that rows break, with counts and positions.

Pandera on PySpark runs one Spark job per check: 65 ms of CPU, even for few rows. At run time one query therefore evaluates
the derived SQL of all rules of a model, and Pandera validates the frame with these answers. Tests prove that the model's
own checks give the same result (ADR 5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandera.pyspark as pa
from pandera.config import ValidationDepth, config_context
from pyspark.sql import functions as F

from cdc_pipeline.contracts.rules import NOT_NULL, Rule, model_rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, Row

_EXAMPLES = 5
_PANDERA_NOT_NULL = "not_nullable"
"""Pandera's name of the check for nulls."""
_TYPE = "type"


@dataclass(frozen=True)
class Breach:
    """A rule that rows break."""

    rule: str
    expected: str
    """The rule as text."""
    count: int
    """Rows that break it."""
    examples: tuple[str, ...]
    """Positions of up to 5 of these rows, as topic/partition@offset."""
    warn: bool = False
    """The rows are valid nevertheless (`Rule.warn`)."""
    found: str | None = None
    """What the first example has instead; None if the rule does not describe it."""


def failed_rules(frame: DataFrame, schema: Any) -> tuple[str, ...]:
    """Sorted names (as in `contracts.rules`) of the rules that the frame breaks, found by Pandera's checks of the schema.

    A field that is missing or has another type is reported as `<field>.type`. Runs one Spark job per check.
    """
    with config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_AND_DATA):
        validated: Any = schema.validate(frame)
    errors = [error for kinds in validated.pandera.errors.values() for listed in kinds.values() for error in listed]
    return tuple(sorted({_rule_name(error, schema) for error in errors}))


def _rule_name(error: dict[str, Any], schema: Any) -> str:
    """Pandera reports a check of the whole frame by its error text, a check of a field by name and arguments."""
    check, field = str(error["check"]), str(error["column"])
    names = {str(declared.error): str(declared.name) for declared in schema.checks}
    if check in names:
        return names[check]
    if check == _PANDERA_NOT_NULL:
        return f"{field}.{NOT_NULL}"
    name = check.split("(")[0]
    known = {str(declared.name) for declared in schema.columns[field].checks}
    return f"{field}.{name}" if name in known else f"{field}.{_TYPE}"


def find_breaches(frame: DataFrame, model: type[pa.DataFrameModel[Any]]) -> tuple[Breach, ...]:
    """The rules that rows of `frame` break. `frame` has topic, partition and offset.

    If fields are missing or have other types, reports only these: no rule can be evaluated on such a frame.
    """
    if types := wrong_types(frame, model):
        return types
    return breaches_of_counts(frame, model, frame.agg(*rule_counts(model)).collect())


def wrong_types(frame: DataFrame, model: type[pa.DataFrameModel[Any]]) -> tuple[Breach, ...]:
    """The fields that are missing or have other types. Counts the rows only if there are such fields."""
    names = failed_rules(frame, _schema_with_answers(model, {}))
    count = frame.count() if names else 0
    return tuple(Breach(name, "the field has the type of the contract", count, ()) for name in names)


def rule_counts(model: type[pa.DataFrameModel[Any]]) -> list[Column]:
    """Aggregates for `breaches_of_counts`: by rule, the number of rows that break it."""
    rules = enumerate(model_rules(model))
    return [F.count(F.when(~F.expr(rule.condition), 1)).alias(f"r{index}") for index, rule in rules]


def breaches_of_counts(
    frame: DataFrame, model: type[pa.DataFrameModel[Any]], groups: Sequence[Row]
) -> tuple[Breach, ...]:
    """`find_breaches`, if the fields have their types. `groups`: `rule_counts` of the rows of the frame, in any grouping."""
    rules = model_rules(model)
    counts = {rule.name: sum(group[f"r{index}"] for group in groups) for index, rule in enumerate(rules)}
    failed = failed_rules(frame, _schema_with_answers(model, counts))
    by_name = {rule.name: rule for rule in rules}
    return tuple(_breach(frame, by_name[name], counts[name]) for name in failed)


def _schema_with_answers(model: type[pa.DataFrameModel[Any]], counts: Mapping[str, int]) -> Any:
    """The model's schema, with one check per counted rule that passes if its count is 0."""
    checks = [_check(name, count) for name, count in counts.items()]
    return pa.DataFrameSchema(columns=_types(model.to_schema()), checks=checks)


def _types(schema: Any) -> dict[str, Any]:
    """The columns of a schema with their types, without checks."""
    return {name: pa.Column(field.dtype, nullable=True) for name, field in schema.columns.items()}


def _check(name: str, count: int) -> Any:
    return pa.Check(lambda _: count == 0, name=name, error=name)


def _breach(frame: DataFrame, rule: Rule, count: int) -> Breach:
    broken = frame.where(~F.expr(rule.condition))
    position = F.format_string("%s/%d@%d", "topic", "partition", "offset").alias("position")
    found = F.lit(None).cast("string") if rule.found is None else F.expr(rule.found)
    rows = broken.select(position, found.alias("found")).limit(_EXAMPLES).collect()
    examples = tuple(row["position"] for row in rows)
    return Breach(rule.name, rule.expected, count, examples, rule.warn, rows[0]["found"] if rows else None)
