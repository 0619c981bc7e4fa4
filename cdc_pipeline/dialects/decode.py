"""Raw records to unified changes: one parse, the record's dialect, its form, the rule it breaks, its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from pyspark.sql import functions as F

from cdc_pipeline.contracts.canal_json import CLAIM_RULE
from cdc_pipeline.contracts.rules import broken_rule, expectations, rejecting, rules_of
from cdc_pipeline.dialects.claims import CONTENT, PROBLEM, unlooked_problem
from cdc_pipeline.dialects.dialect import COLUMNS
from cdc_pipeline.dialects.envelope import JSON_RULES, base_kind, is_empty, parsed
from cdc_pipeline.dialects.registry import BY_NAME, DIALECTS
from cdc_pipeline.dialects.unified import DEAD
from cdc_pipeline.spark.built_once import built_once

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from cdc_pipeline.dialects.dialect import Dialect

DialectName = Literal["auto", "ticdc", "canal", "dataworks"]
"""`auto` recognises each record by itself; else all records are of the dialect named, or dead letters."""

assert set(BY_NAME) == set(get_args(DialectName)) - {"auto"}
_RULES = {form.name: rejecting(rules_of(form.contract)) for dialect in DIALECTS for form in dialect.forms}
_DECLARED = "dialect_is_declared"
SENT_CONTRACTS = {form.name: form.sent for dialect in DIALECTS for form in dialect.forms if form.sent is not None}
"""Form → the contract of its messages as they are sent."""
EXPECTATIONS = {
    **{name: (text, None) for name, text in JSON_RULES.items()},
    _DECLARED: ("the message is of the dialect that the pipeline declares", None),
    **expectations(_RULES),
}
"""Rule → what was expected of a record, and the field that the rule speaks of."""
_SHOWN = 100


def decoded(raw: DataFrame, dialect: DialectName = "auto") -> DataFrame:
    """Each raw record as exactly one kind, with the columns of every kind (`dialects.unified`); null where not its own.

    `raw` has the columns of `raw_topic_snapshot`, and may have those of `contents.with_contents`. Nothing is dropped: as
    many rows come out as go in. Besides those of a raw record and `dialect.COLUMNS` the columns are `kind`, `dialect`, and
    for dead letters `rule`.
    """
    return _ruled(raw, dialect).select(*_kept(raw), "kind", "rule", "dialect", *_unified(dialect))


def explained(raw: DataFrame, dialect: DialectName = "auto") -> DataFrame:
    """`decoded`, and for dead letters `column` and `reason`: which field, what was expected and what is there.

    For few records: the words cost more than decoding does.
    """
    words = _words(problems=PROBLEM in raw.columns)
    return _ruled(raw, dialect).select(*_kept(raw), "kind", "rule", "dialect", *_unified(dialect), *words)


def _kept(raw: DataFrame) -> list[str]:
    """The columns of a raw record: what was made of its value, to be parsed, goes no further."""
    return [name for name in raw.columns if name not in (CONTENT, PROBLEM)]


def dialect_and_form(dialect: DialectName) -> tuple[Column, Column]:
    """The name of a parsed record's dialect, and of its form."""
    return _classified(dialect)[:2]


def _ruled(raw: DataFrame, dialect: DialectName) -> DataFrame:
    """The parsed records with `dialect`, `form`, the first `rule` that each breaks, and `kind`."""
    name, form, rule, kind = _classified(dialect)
    return (
        parsed(raw)
        .withColumn("dialect", name)
        .withColumn("form", form)
        .withColumn("rule", rule)
        .withColumn("kind", kind)
    )


@built_once
def _classified(dialect: DialectName) -> tuple[Column, Column, Column, Column]:
    dialects = _asked(dialect)
    forms = {form.name: form.kind for found in dialects for form in found.forms}
    broken = broken_rule({form: _RULES[form] for form in forms}, F.col("form"))
    return (
        _recognised(dialects),
        _of_dialect({found.name: found.form() for found in dialects}),
        F.when(~is_empty(), F.coalesce(F.col("unreadable"), _undeclared(dialects), broken)),
        base_kind(_kind(forms)),
    )


def _undeclared(dialects: Sequence[Dialect]) -> Column:
    """The rule that a message breaks which surely is of a dialect that the pipeline does not declare."""
    others = [found.certain() for found in DIALECTS if found not in dialects]
    return F.coalesce(F.lit(None).cast("string"), *(F.when(certain, F.lit(_DECLARED)) for certain in others))


@built_once
def _unified(dialect: DialectName) -> tuple[Column, ...]:
    columns = {found.name: found.columns() for found in _asked(dialect)}
    return tuple(
        _of_dialect({found: of_dialect[name] for found, of_dialect in columns.items()}).cast(kind).alias(name)
        for name, kind in COLUMNS.items()
    )


@built_once
def _words(*, problems: bool) -> tuple[Column, Column]:
    dead, reason = F.col("kind") == DEAD, _reason()
    unlooked = F.concat(reason, F.lit("; "), unlooked_problem(F.col("claimCheckLocation")))
    problem = F.col(PROBLEM) if problems else F.lit(None)
    reason = F.when(F.col("rule") == CLAIM_RULE, F.coalesce(problem, unlooked)).otherwise(reason)
    return F.when(dead, _field()).alias("column"), F.when(dead, reason).alias("reason")


def _asked(dialect: DialectName) -> list[Dialect]:
    return [found for found in DIALECTS if dialect in ("auto", found.name)]


def _recognised(dialects: Sequence[Dialect]) -> Column:
    *asked, last = dialects
    name = F.lit(last.name)
    for dialect in reversed(asked):
        name = F.when(dialect.recognised(), F.lit(dialect.name)).otherwise(name)
    return name


def _of_dialect(columns: dict[str, Column]) -> Column:
    """The column of the record's own dialect."""
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
    """The field that the broken rule speaks of."""
    return _looked_up({rule: field for rule, (_, field) in EXPECTATIONS.items() if field is not None})


def _reason() -> Column:
    """What was expected of a record that broke a rule, and what it has there."""
    sizes = {rule.name: rule.found for rules in _RULES.values() for rule in rules if rule.found is not None}
    expected = _looked_up({rule: text for rule, (text, _) in EXPECTATIONS.items()})
    fields = sorted({field for rule, (_, field) in EXPECTATIONS.items() if field is not None and rule not in sizes})
    values = F.create_map(*(part for field in fields for part in (F.lit(field), F.col(field).cast("string"))))
    size = F.coalesce(*(F.when(F.col("rule") == name, F.expr(found)) for name, found in sizes.items()))
    shown = F.coalesce(size, F.substring(values[_field()], 1, _SHOWN), F.lit("null"))
    found = F.when(_field().isNotNull(), F.concat(F.lit(", found "), shown))
    return F.concat(F.lit("expected: "), expected, F.coalesce(found, F.lit("")))


def _looked_up(texts: dict[str, str]) -> Column:
    pairs = [F.lit(part) for pair in sorted(texts.items()) for part in pair]
    return F.create_map(*pairs)[F.col("rule")]
