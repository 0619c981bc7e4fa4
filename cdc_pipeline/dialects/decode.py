"""Decodes raw records: parses each once, then adds its dialect, form, kind, broken rule and decoded columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.contracts.canal_json import CLAIM_RULE, READ_BY
from cdc_pipeline.contracts.rules import broken_rule, expectations, model_rules, rejecting_rules
from cdc_pipeline.contracts.tables import KnownDialect
from cdc_pipeline.dialects.claims import CONTENT, PROBLEM, no_store_problem
from cdc_pipeline.dialects.dialect import COLUMNS, Dialect
from cdc_pipeline.dialects.envelope import JSON_RULES, ZERO_IS_CANAL, base_kind, is_empty, parse_records
from cdc_pipeline.dialects.topic_tables import DECLARED, TABLE_EXPECTATION, TABLE_RULE, undeclared_table
from cdc_pipeline.dialects.traits import BY_NAME, DIALECTS
from cdc_pipeline.dialects.unified import DEAD
from cdc_pipeline.spark.jvm import built_once

DialectName = Literal["auto", KnownDialect]
"""`auto` recognizes the dialect of each record. With a name, records of another dialect become dead letters."""

assert set(BY_NAME) == set(get_args(KnownDialect))
_RULES = {form.name: rejecting_rules(model_rules(form.contract)) for dialect in DIALECTS for form in dialect.forms}
_DECLARED_RULE = "dialect_is_declared"
COMPLETE_CONTRACTS = {
    form.name: form.complete_contract
    for dialect in DIALECTS
    for form in dialect.forms
    if form.complete_contract is not None
}
"""Form → the contract of all its fields."""
EXPECTATIONS = {
    **{name: (text, None) for name, text in JSON_RULES.items()},
    _DECLARED_RULE: ("the message has the dialect that the pipeline declares", None),
    TABLE_RULE: (TABLE_EXPECTATION, None),
    **expectations(_RULES),
}
"""Rule name → its text, and its field (None for a rule over several)."""
_SHOWN_CHARACTERS = 100


def decode(raw: DataFrame, dialect: DialectName = "auto", expected: tuple[str, ...] | None = None) -> DataFrame:
    """One row per raw record, with its kind and the columns of all kinds.

    `raw`: the columns of `raw_topic_snapshot`, optionally those of `contents.with_contents`, `senders.with_senders` and
    `topic_tables.with_tables`, and `canal_json.READ_BY`. `expected`: with `auto`, the names of the only dialects whose
    messages are decoded, which costs less; the kind of the others is null.
    Returns the columns of a raw record, `kind` (`unified.KINDS`), `rule` (dead letters only), `dialect`, and
    `dialect.COLUMNS`.
    """
    decoded = _decoded_columns(dialect, expected)
    return _classified(raw, dialect, expected).select(*_record_columns(raw), "kind", "rule", "dialect", *decoded)


def has_one_row(dialect: DialectName, expected: tuple[str, ...] | None = None) -> bool:
    """Whether no message that `decode` decodes has several row changes."""
    return all(candidate.has_one_row for candidate in _decoded_dialects(dialect, expected))


def decode_with_reasons(raw: DataFrame, dialect: DialectName = "auto") -> DataFrame:
    """`decode`, plus `column` and `reason` for dead letters: the field, what was expected and what was found.

    For few records: the reasons cost more than decoding.
    """
    reasons = _reason_columns(problems=PROBLEM in raw.columns)
    decoded = _decoded_columns(dialect, None)
    frame = _classified(raw, dialect, None)
    return frame.select(*_record_columns(raw), "kind", "rule", "dialect", *decoded, *reasons)


def _record_columns(raw: DataFrame) -> list[str]:
    """The columns of a raw record, without those that decoding adds."""
    return [name for name in raw.columns if name not in (CONTENT, PROBLEM, ZERO_IS_CANAL, READ_BY, DECLARED)]


def dialect_and_form(dialect: DialectName) -> tuple[Column, Column]:
    """The name of a parsed record's dialect, and that of its form."""
    return _class_columns(dialect, None)[:2]


def _classified(raw: DataFrame, dialect: DialectName, expected: tuple[str, ...] | None) -> DataFrame:
    """The parsed records with `dialect`, `form`, the first `rule` that each breaks, and `kind`."""
    name, form, rule, kind = _class_columns(dialect, expected)
    return (
        parse_records(raw)
        .withColumn("dialect", name)
        .withColumn("form", form)
        .withColumn("rule", rule)
        .withColumn("kind", kind)
    )


@built_once
def _class_columns(dialect: DialectName, expected: tuple[str, ...] | None) -> tuple[Column, Column, Column, Column]:
    """The columns `dialect`, `form`, `rule` and `kind`."""
    dialects, decoded = _candidates(dialect), _decoded_dialects(dialect, expected)
    forms = {form.name: form.kind for candidate in decoded for form in candidate.forms}
    broken = broken_rule({form: _RULES[form] for form in forms}, F.col("form"))
    form = _by_dialect({candidate.name: candidate.form() for candidate in decoded})
    is_decoded = F.col("dialect").isin([candidate.name for candidate in decoded])
    return (
        _dialect_name(dialects),
        form if decoded == dialects else F.when(is_decoded, form),
        F.when(~is_empty(), F.coalesce(F.col("unreadable"), _undeclared(dialects), undeclared_table(), broken)),
        base_kind(_kind(forms)),
    )


def _undeclared(dialects: Sequence[Dialect]) -> Column:
    """`dialect_is_declared` if the message surely has a dialect that the pipeline does not declare, else null."""
    others = [dialect.surely_matches() for dialect in DIALECTS if dialect not in dialects]
    return F.coalesce(F.lit(None).cast("string"), *(F.when(matches, F.lit(_DECLARED_RULE)) for matches in others))


@built_once
def _decoded_columns(dialect: DialectName, expected: tuple[str, ...] | None) -> tuple[Column, ...]:
    columns = {candidate.name: candidate.columns() for candidate in _decoded_dialects(dialect, expected)}
    return tuple(
        _by_dialect({candidate: own[name] for candidate, own in columns.items()}).cast(type_).alias(name)
        for name, type_ in COLUMNS.items()
    )


@built_once
def _reason_columns(*, problems: bool) -> tuple[Column, Column]:
    """The columns `column` and `reason`. `problems`: the records have `claims.PROBLEM`."""
    is_dead, reason = F.col("kind") == DEAD, _reason()
    without_store = F.concat(reason, F.lit("; "), no_store_problem(F.col("claimCheckLocation")))
    problem = F.col(PROBLEM) if problems else F.lit(None)
    reason = F.when(F.col("rule") == CLAIM_RULE, F.coalesce(problem, without_store)).otherwise(reason)
    return F.when(is_dead, _field()).alias("column"), F.when(is_dead, reason).alias("reason")


def _candidates(dialect: DialectName) -> list[Dialect]:
    return [candidate for candidate in DIALECTS if dialect in ("auto", candidate.name)]


def _decoded_dialects(dialect: DialectName, expected: tuple[str, ...] | None) -> list[Dialect]:
    return [candidate for candidate in _candidates(dialect) if expected is None or candidate.name in expected]


def _dialect_name(dialects: Sequence[Dialect]) -> Column:
    """The first dialect that matches; the last one matches every message."""
    *others, last = dialects
    name = F.lit(last.name)
    for dialect in reversed(others):
        name = F.when(dialect.matches(), F.lit(dialect.name)).otherwise(name)
    return name


def _by_dialect(columns: dict[str, Column]) -> Column:
    """The column of the record's dialect. `columns`: dialect → its column."""
    *others, (_, column) = columns.items()
    for name, other in reversed(others):
        column = F.when(F.col("dialect") == name, other).otherwise(column)
    return column


def _kind(forms: dict[str, str]) -> Column:
    kinds: dict[str, list[str]] = {}
    for form, kind in forms.items():
        kinds.setdefault(kind, []).append(form)
    return F.coalesce(*(F.when(F.col("form").isin(*names), F.lit(kind)) for kind, names in kinds.items()))


def _field() -> Column:
    """The field of the broken rule; null for a rule over several fields."""
    return _rule_lookup({rule: field for rule, (_, field) in EXPECTATIONS.items() if field is not None})


def _reason() -> Column:
    """`expected: <the rule>, found <the field's value, or the rule's own description>`."""
    described = {rule.name: rule.found for rules in _RULES.values() for rule in rules if rule.found is not None}
    expected = _rule_lookup({rule: text for rule, (text, _) in EXPECTATIONS.items()})
    fields = sorted({field for rule, (_, field) in EXPECTATIONS.items() if field is not None and rule not in described})
    values = F.create_map(*(part for field in fields for part in (F.lit(field), F.col(field).cast("string"))))
    description = F.coalesce(*(F.when(F.col("rule") == name, F.expr(found)) for name, found in described.items()))
    shown = F.coalesce(description, F.substring(values[_field()], 1, _SHOWN_CHARACTERS), F.lit("null"))
    found = F.when(_field().isNotNull(), F.concat(F.lit(", found "), shown))
    return F.concat(F.lit("expected: "), expected, F.coalesce(found, F.lit("")))


def _rule_lookup(texts: dict[str, str]) -> Column:
    """The text of the record's broken rule."""
    pairs = [F.lit(part) for pair in sorted(texts.items()) for part in pair]
    return F.create_map(*pairs)[F.col("rule")]
