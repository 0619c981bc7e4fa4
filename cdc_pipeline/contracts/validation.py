"""Pandera over what was written: which rules of a contract rows of a table break, how many, and where they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pandera.config import ValidationDepth, config_context
from pyspark.sql import functions as F

from cdc_pipeline.contracts.rules import NOT_NULL, Rule, rules_of

if TYPE_CHECKING:
    import pandera.pyspark as pa
    from pyspark.sql import DataFrame

_EXAMPLES = 5
# what Pandera calls a null in a field that must not have one
_NULLS = "not_nullable"
_TYPE = "type"


@dataclass(frozen=True)
class Breach:
    """A rule that rows break: how many rows, and some of their positions as topic/partition@offset."""

    rule: str
    expected: str
    count: int
    examples: tuple[str, ...]


def failed_rules(frame: DataFrame, model: type[pa.DataFrameModel[Any]]) -> tuple[str, ...]:
    """The names of the model's rules that Pandera finds broken, as `contracts.rules` names them, sorted.

    A field that is missing or has another type is `<field>.type`. Each check is a Spark job of its own.
    """
    with config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_AND_DATA):
        validated: Any = model.validate(frame)  # type: ignore[arg-type]  # Pandera's own class of typed frames
    errors = [error for kinds in validated.pandera.errors.values() for found in kinds.values() for error in found]
    return tuple(sorted({_rule_name(error, model) for error in errors}))


def _rule_name(error: dict[str, Any], model: type[pa.DataFrameModel[Any]]) -> str:
    """Pandera calls a check of the whole frame by its words, one of a field by its name and arguments."""
    schema = model.to_schema()
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
    failed = failed_rules(frame, model)
    if types := [name for name in failed if name.endswith(f".{_TYPE}")]:
        count = frame.count()
        return tuple(Breach(name, "the field has the type of the contract", count, ()) for name in types)
    rules = {rule.name: rule for rule in rules_of(model)}
    return tuple(_breach(frame, rules[name]) for name in failed)


def _breach(frame: DataFrame, rule: Rule) -> Breach:
    broken = frame.where(~F.expr(rule.kept))
    place = F.format_string("%s/%d@%d", "topic", "partition", "offset").alias("place")
    examples = tuple(row["place"] for row in broken.select(place).limit(_EXAMPLES).collect())
    return Breach(rule.name, rule.expected, broken.count(), examples)
