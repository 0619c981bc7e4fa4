"""Pandera over what was written, and over messages as they were sent: which rules of a contract rows break, how many rows,
and where they are.

A check of Pandera on PySpark is a Spark job of its own, 65 ms of CPU however few the rows. So at run time one query asks
for all rules of a model at once, by the SQL that is derived from it, and Pandera validates the frame by its answers; that
the model's own checks say the same is proved by tests (ADR 5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandera.pyspark as pa
from pandera.config import ValidationDepth, config_context
from pyspark.sql import functions as F

from cdc_pipeline.contracts.rules import NOT_NULL, Rule, rules_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import DataFrame

_EXAMPLES = 5
# what Pandera calls a null in a field that must not have one
_NULLS = "not_nullable"
_TYPE = "type"


@dataclass(frozen=True)
class Breach:
    """A rule that rows break: how many rows, and some of their positions as topic/partition@offset. `warn`: the rows are
    good all the same. `found` says what one of them has there, where the rule tells it."""

    rule: str
    expected: str
    count: int
    examples: tuple[str, ...]
    warn: bool = False
    found: str | None = None


def failed_rules(
    frame: DataFrame, model: type[pa.DataFrameModel[Any]], only: Collection[str] | None = None
) -> tuple[str, ...]:
    """The names of the model's rules that Pandera finds broken by its own checks, as `contracts.rules` names them, sorted;
    of those over several fields `only` these, if they are given, and then none of single fields.

    A field that is missing or has another type is `<field>.type`. Each check is a Spark job of its own.
    """
    schema = model.to_schema()
    if only is None or any("." in name for name in only):
        return _failed(frame, schema)
    checks = [check for check in schema.checks if check.name in only]
    return _failed(frame, pa.DataFrameSchema(columns=_types(schema), checks=checks))


def _failed(frame: DataFrame, schema: Any) -> tuple[str, ...]:
    with config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_AND_DATA):
        validated: Any = schema.validate(frame)
    errors = [error for kinds in validated.pandera.errors.values() for found in kinds.values() for error in found]
    return tuple(sorted({_rule_name(error, schema) for error in errors}))


def _rule_name(error: dict[str, Any], schema: Any) -> str:
    """Pandera calls a check of the whole frame by its words, one of a field by its name and arguments."""
    check, field = str(error["check"]), str(error["column"])
    by_words = {str(found.error): str(found.name) for found in schema.checks}
    if check in by_words:
        return by_words[check]
    if check == _NULLS:
        return f"{field}.{NOT_NULL}"
    name = check.split("(")[0]
    known = {str(found.name) for found in schema.columns[field].checks}
    return f"{field}.{name}" if name in known else f"{field}.{_TYPE}"


def breaches(frame: DataFrame, model: type[pa.DataFrameModel[Any]]) -> tuple[Breach, ...]:
    """What Pandera finds, each rule with the rows that break it. `frame` has topic, partition and offset.

    Where fields are missing or have other types only those are told: no rule can be looked at in such a table.
    """
    if types := _failed(frame, _answered(model, {})):
        count = frame.count()
        return tuple(Breach(name, "the field has the type of the contract", count, ()) for name in types)
    counts = _counts(frame, model)
    rules = {rule.name: rule for rule in rules_of(model)}
    failed = _failed(frame, _answered(model, counts))
    return tuple(_breach(frame, rules[name], counts[name]) for name in failed)


def _counts(frame: DataFrame, model: type[pa.DataFrameModel[Any]]) -> dict[str, int]:
    """How many rows break each rule."""
    rules = rules_of(model)
    asked = [F.count(F.when(~F.expr(rule.kept), 1)).alias(f"r{place}") for place, rule in enumerate(rules)]
    found = frame.agg(*asked).first()
    assert found is not None
    return {rule.name: found[place] for place, rule in enumerate(rules)}


def _answered(model: type[pa.DataFrameModel[Any]], counts: Mapping[str, int]) -> Any:
    """The model's schema, each rule of it a check that has its answer."""
    checks = [_check(name, count) for name, count in counts.items()]
    return pa.DataFrameSchema(columns=_types(model.to_schema()), checks=checks)


def _types(schema: Any) -> dict[str, Any]:
    """The fields of a schema, with their types alone."""
    return {name: pa.Column(field.dtype, nullable=True) for name, field in schema.columns.items()}


def _check(name: str, count: int) -> Any:
    return pa.Check(lambda _: count == 0, name=name, error=name)


def _breach(frame: DataFrame, rule: Rule, count: int) -> Breach:
    broken = frame.where(~F.expr(rule.kept))
    place = F.format_string("%s/%d@%d", "topic", "partition", "offset").alias("place")
    found = F.lit(None).cast("string") if rule.found is None else F.expr(rule.found)
    rows = broken.select(place, found.alias("found")).limit(_EXAMPLES).collect()
    examples = tuple(row["place"] for row in rows)
    return Breach(rule.name, rule.expected, count, examples, rule.warn, rows[0]["found"] if rows else None)
