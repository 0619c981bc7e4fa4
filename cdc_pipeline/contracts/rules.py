"""The rules of a model, derived from it: one per field that must be there, per check of a field, per rule of the frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from cdc_pipeline.contracts.checks import condition, frame_condition, in_words, sizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandera.pyspark as pa
    from pyspark.sql import Column

NOT_NULL = "not_null"


@dataclass(frozen=True)
class Rule:
    """One rule. `name` is what a dead letter calls it: `<field>.<check>`, or the name of a rule over several fields.

    `kept` is SQL that is true where a row keeps it, else false, never null; `field` is None for a rule over several.
    `warn`: a row that breaks it goes on, and is counted; else it is a dead letter. `clause` is where a document says it,
    `found` SQL of what is there in a row that breaks it, where the field's own value does not say it.
    """

    name: str
    expected: str
    kept: str
    field: str | None = None
    warn: bool = False
    clause: str = ""
    found: str | None = None


def rules_of(model: type[pa.DataFrameModel[Any]]) -> tuple[Rule, ...]:
    """All rules of the model: those of its fields in their order, then those over several, a base class's before its own.

    Raises ContractError for a check that cannot be made SQL.
    """
    schema = model.to_schema()
    rules = []
    for name, field in schema.columns.items():
        clause = str((field.metadata or {}).get("clause", ""))
        if not field.nullable:
            rules.append(Rule(f"{name}.{NOT_NULL}", f"{name} is there", f"`{name}` IS NOT NULL", name, clause=clause))
        for check in field.checks:
            words = f"{name} {in_words(check.name, check.statistics)}"
            found = sizes(check, name)
            kept = condition(check, name)
            rules.append(Rule(f"{name}.{check.name}", words, kept, name, clause=clause, found=found))
    declared = [name for base in reversed(model.__mro__) for name in vars(base)]
    checks = sorted(schema.checks, key=lambda check: declared.index(str(check.name)))
    rules += [_of_frame(check) for check in checks]
    return tuple(rules)


def _of_frame(check: Any) -> Rule:
    said = check.statistics
    return Rule(
        str(check.name),
        str(check.error),
        frame_condition(check),
        said["field"],
        said["warn"],
        said["clause"],
        said["found"],
    )


def rejecting(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Those whose breach makes a dead letter."""
    return tuple(rule for rule in rules if not rule.warn)


def broken_rule(rules_by_form: Mapping[str, Sequence[Rule]], form: Column) -> Column:
    """The name of the first rule that a row breaks, of those of its form; null where it keeps them all.

    A rule that several forms share is looked at once.
    """
    forms: dict[Rule, list[str]] = {}
    for name, rules in rules_by_form.items():
        for rule in rules:
            forms.setdefault(rule, []).append(name)
    broken = [
        F.when(form.isin(*forms[rule]) & ~F.expr(rule.kept), F.lit(rule.name)) for rule in sorted(forms, key=_depth)
    ]
    return F.coalesce(*broken)


def _depth(rule: Rule) -> int:
    """Missing fields are named before wrong ones, and those before fields that do not fit each other."""
    if rule.name.endswith(f".{NOT_NULL}"):
        return 0
    return 1 if rule.name.startswith(f"{rule.field}.") else 2


def expectations(rules_by_form: Mapping[str, Sequence[Rule]]) -> dict[str, tuple[str, str | None]]:
    """Rule → what was expected, and the field that it speaks of.

    Where forms expect other values of one field, the first counts: a message of a type that no form has is of the first.
    """
    found: dict[str, tuple[str, str | None]] = {}
    for rules in rules_by_form.values():
        for rule in rules:
            found.setdefault(rule.name, (rule.expected, rule.field))
    return found
