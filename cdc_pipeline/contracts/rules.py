"""The rules of a Pandera model: one per required field, per check of a field, and per check of the whole frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from cdc_pipeline.contracts.checks import check_text, field_condition, found_length, frame_condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandera.pyspark as pa
    from pyspark.sql import Column

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
