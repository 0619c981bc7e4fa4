"""The rules of a Pandera model: one per required field, per check of a field, and per check of the whole frame.

Pandera on PySpark runs one Spark job per check: 65 ms of CPU, even for few rows. At run time one query therefore evaluates
the derived SQL of all rules of a model, and Pandera validates the frame with these answers. Tests prove that the model's
own checks give the same result (ADR 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandera.pyspark as pa
from pandera.config import ValidationDepth, config_context
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from cdc_pipeline.contracts.checks import check_text, field_condition, found_length, frame_condition

NOT_NULL = "not_null"


@dataclass(frozen=True)
class Rule:
    """One field rule."""

    name: str
    """`<field>.<check>`, or for a rule over several fields its own name. Dead letters store it."""
    expected: str
    """The rule as text."""
    condition: str
    """SQL: true if a row keeps the rule, else false; never null."""
    field: str | None = None
    """None for a rule over several fields."""
    warn: bool = False
    """A row that breaks the rule is counted and decoded; without it the record becomes a dead letter."""
    clause: str = ""
    """Clause of the format document."""
    found: str | None = None
    """SQL that describes what a row has instead. None if the field's value is enough."""


def model_rules(model: type[pa.DataFrameModel[Any]]) -> tuple[Rule, ...]:
    """All rules of the model: of fields in field order, then of the whole frame, base classes first.

    Raises ContractError for a check without SQL.
    """
    schema = model.to_schema()
    rules = []
    for name, field in schema.columns.items():
        clause = str((field.metadata or {}).get("clause", ""))
        if not field.nullable:
            rules.append(
                Rule(f"{name}.{NOT_NULL}", f"{name} is not null", f"`{name}` IS NOT NULL", name, clause=clause)
            )
        for check in field.checks:
            expected = f"{name} {check_text(check.name, check.statistics)}"
            condition, found = field_condition(check, name), found_length(check, name)
            rules.append(Rule(f"{name}.{check.name}", expected, condition, name, clause=clause, found=found))
    declared = [name for base in reversed(model.__mro__) for name in vars(base)]
    checks = sorted(schema.checks, key=lambda check: declared.index(str(check.name)))
    rules += [_frame_rule(check) for check in checks]
    return tuple(rules)


def _frame_rule(check: Any) -> Rule:
    statistics = check.statistics
    return Rule(
        str(check.name),
        str(check.error),
        frame_condition(check),
        statistics["field"],
        statistics["warn"],
        statistics["clause"],
        statistics["found"],
    )


def rejecting_rules(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules whose breach makes a dead letter."""
    return tuple(rule for rule in rules if not rule.warn)


def broken_rule(rules_by_form: Mapping[str, Sequence[Rule]], form: Column) -> Column:
    """The name of the first rule of its form that a row breaks; null if it keeps all.

    Rules of a missing field come first, then rules of one field, then rules over several. A rule that several forms share
    is evaluated once.
    """
    forms: dict[Rule, list[str]] = {}
    for name, rules in rules_by_form.items():
        for rule in rules:
            forms.setdefault(rule, []).append(name)
    broken = [
        F.when(form.isin(*forms[rule]) & ~F.expr(rule.condition), F.lit(rule.name))
        for rule in sorted(forms, key=_precedence)
    ]
    return F.coalesce(*broken)


def _precedence(rule: Rule) -> int:
    if rule.name.endswith(f".{NOT_NULL}"):
        return 0
    return 1 if rule.name.startswith(f"{rule.field}.") else 2


def expectations(rules_by_form: Mapping[str, Sequence[Rule]]) -> dict[str, tuple[str, str | None]]:
    """Rule name → its text and its field.

    If forms expect different values of one field, the first form counts. A message of an unknown type has the first form.
    """
    found: dict[str, tuple[str, str | None]] = {}
    for rules in rules_by_form.values():
        for rule in rules:
            found.setdefault(rule.name, (rule.expected, rule.field))
    return found


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
