"""Comparisons, boolean operators and conditional functions of MySQL expressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cdc_pipeline.mysql.expressions import values as v
from cdc_pipeline.mysql.expressions.arithmetic import as_number, decimal
from cdc_pipeline.mysql.expressions.moments import as_date, as_datetime
from cdc_pipeline.mysql.expressions.texts import as_bytes, as_text, combined_string, equal_texts, ordered_texts
from cdc_pipeline.mysql.expressions.values import Context, ExpressionError, Value, ValueKind

_STRINGS = frozenset({ValueKind.TEXT, ValueKind.BYTES})
_EXTREMES = {"GREATEST": "array_max", "LEAST": "array_min"}


def comparison(operator: str, left: Value, right: Value, context: Context) -> Value:
    """`left operator right` for `=`, `<>`, `<`, `<=`, `>` and `>=`. Raises ExpressionError for unsupported kinds."""
    if ValueKind.NULL in (left.kind, right.kind):
        return v.null()
    for side in (left, right):
        v.require_kind(side, ValueKind, f"`{operator}`")
    kinds = {left.kind, right.kind}
    if kinds & v.NUMBERS:
        return _number_comparison(operator, as_number(left), as_number(right))
    if kinds & v.MOMENTS:
        return _moment_comparison(operator, left, right, context)
    if kinds <= _STRINGS:
        return _string_comparison(operator, left, right)
    if kinds == {ValueKind.TIME} and left.scale == right.scale and operator in ("=", "<>"):
        return v.boolean_value(f"({left.sql} {operator} {right.sql})", left, right)
    raise ExpressionError(f"`{operator}` of a {left.kind.value} and a {right.kind.value} value is not supported")


def _number_comparison(operator: str, left: Value, right: Value) -> Value:
    for side in (left, right):
        v.require_kind(side, v.NUMBERS, f"`{operator}`")
    if ValueKind.DOUBLE in (left.kind, right.kind):
        return v.boolean_value(f"({v.double_sql(left)} {operator} {v.double_sql(right)})", left, right)
    if max(left.digits - left.scale, right.digits - right.scale) + max(left.scale, right.scale) > v.MAX_DIGITS:
        raise ExpressionError(f"`{operator}`: the decimals have too many digits for Spark")
    if left.kind is right.kind is ValueKind.INTEGER and not left.is_wide and not right.is_wide:
        return v.boolean_value(f"({left.sql} {operator} {right.sql})", left, right)
    return v.boolean_value(f"({v.exact_sql(left)} {operator} {v.exact_sql(right)})", left, right)


def _moment_comparison(operator: str, left: Value, right: Value, context: Context) -> Value:
    if left.kind is right.kind is ValueKind.TIMESTAMP:
        return v.boolean_value(f"({left.sql} {operator} {right.sql})", left, right)
    sides = [as_datetime(side, context) for side in (left, right)]
    return v.boolean_value(f"({sides[0].sql} {operator} {sides[1].sql})", *sides)


def _string_comparison(operator: str, left: Value, right: Value) -> Value:
    if ValueKind.BYTES in (left.kind, right.kind):
        sides = [as_bytes(left), as_bytes(right)]
        return v.boolean_value(f"({sides[0].sql} {operator} {sides[1].sql})", *sides)
    if operator in ("=", "<>"):
        condition, doubt = equal_texts(left, right)
        return v.add_doubts(v.boolean_value(condition if operator == "=" else f"(NOT {condition})", left, right), doubt)
    condition, doubt = ordered_texts(left, right, operator)
    return v.add_doubts(v.boolean_value(condition, left, right), doubt)


def null_safe_equal(left: Value, right: Value, context: Context) -> Value:
    """`left <=> right`."""

    def equal_or_both_null(one: Value, other: Value) -> Value:
        nulls = [f"({side.sql} IS NULL)" for side in (one, other)]
        equal = comparison("=", one, other, context)
        both = f"CASE WHEN {nulls[0]} OR {nulls[1]} THEN {nulls[0]} AND {nulls[1]} ELSE {v.to_condition(equal)} END"
        return v.add_doubts(v.boolean_value(f"({both})", one, other), equal.doubt)

    return v.bind_value(left, lambda one: v.bind_value(right, lambda other: equal_or_both_null(one, other)))


def between(value: Value, low: Value, high: Value, context: Context) -> Value:
    """`value BETWEEN low AND high`."""
    return v.bind_value(
        value,
        lambda x: combined_condition("AND", [comparison(">=", x, low, context), comparison("<=", x, high, context)]),
    )


def in_list(value: Value, items: Sequence[Value], context: Context) -> Value:
    """`value IN (items)`."""
    return v.bind_value(
        value, lambda x: combined_condition("OR", [comparison("=", x, item, context) for item in items])
    )


def negation(value: Value) -> Value:
    """`NOT value`."""
    return v.boolean_value(f"(NOT {v.to_condition(value)})", value)


def combined_condition(operator: str, values: Sequence[Value]) -> Value:
    """The values combined by AND, OR or XOR, in the three-valued logic that MySQL and Spark share."""
    sign = {"AND": " AND ", "OR": " OR ", "XOR": " <> "}[operator]
    return v.boolean_value("(" + sign.join(v.to_condition(value) for value in values) + ")", *values)


def is_null(value: Value) -> Value:
    """`value IS NULL`."""
    return v.boolean_value(f"({value.sql} IS NULL)", value)


def boolean_test(value: Value, wanted: bool) -> Value:
    """`value IS TRUE` or `value IS FALSE`."""
    return v.boolean_value(f"({v.to_condition(value)} IS {'TRUE' if wanted else 'FALSE'})", value)


def unify(values: Sequence[Value], context: Context) -> tuple[list[str], Value]:
    """SQL of the values converted to their common type, and a model `Value` of this type.

    Raises ExpressionError if the common type is not supported.
    """
    for value in values:
        v.require_kind(value, ValueKind, "a choice between values")
    known = [value for value in values if value.kind is not ValueKind.NULL]
    if not known:
        return ["NULL" for _ in values], v.null()
    known_sqls, model = _unify_known(known, context)
    texts = iter(known_sqls)
    sqls = ["NULL" if value.kind is ValueKind.NULL else next(texts) for value in values]
    return sqls, replace(model, doubt=None, constant=None, condition=None)


def _unify_known(values: Sequence[Value], context: Context) -> tuple[list[str], Value]:
    kinds = {value.kind for value in values}
    if kinds <= v.NUMBERS:
        return _unify_numbers(values, kinds)
    if kinds <= v.MOMENTS:
        if len(kinds) > 1:
            values = [as_datetime(value, context) for value in values]
        widest = max(values, key=lambda value: value.scale)
        return [value.sql for value in values], widest
    if kinds in ({ValueKind.TIME}, {ValueKind.JSON}):
        if len({value.scale for value in values}) > 1:
            raise ExpressionError("a choice between times with different fractional digits is not supported")
        return [value.sql for value in values], values[0]
    if ValueKind.JSON in kinds:
        raise ExpressionError("a choice between JSON and other values is not supported")
    local = [as_datetime(value, context) if value.kind is ValueKind.TIMESTAMP else value for value in values]
    if ValueKind.BYTES in kinds:
        strings = [as_bytes(value) for value in local]
        return [item.sql for item in strings], combined_string(strings, strings[0].sql, ValueKind.BYTES)
    strings = [as_text(value) for value in local]
    return [item.sql for item in strings], combined_string(strings, strings[0].sql, ValueKind.TEXT)


def _unify_numbers(values: Sequence[Value], kinds: set[ValueKind]) -> tuple[list[str], Value]:
    no_text_reason = next((value.no_text_reason for value in values if value.no_text_reason is not None), None)
    if no_text_reason == "year" and any(value.no_text_reason is None for value in values):
        no_text_reason = "sometimes year"
    if ValueKind.DOUBLE in kinds:
        return [v.double_sql(value) for value in values], Value("", ValueKind.DOUBLE)
    if kinds == {ValueKind.INTEGER}:
        unsigned = all(value.unsigned for value in values)
        if any(value.is_wide for value in values):
            sqls = [f"CAST({value.sql} AS DECIMAL(20,0))" for value in values]
            return sqls, Value(
                "", ValueKind.INTEGER, digits=v.UNSIGNED_DIGITS, unsigned=unsigned, no_text_reason=no_text_reason
            )
        digits = max(value.digits for value in values)
        model = Value("", ValueKind.INTEGER, digits=digits, unsigned=unsigned, no_text_reason=no_text_reason)
        return [value.sql for value in values], model
    scale = max(value.scale for value in values)
    digits = max(value.digits - value.scale for value in values) + scale
    if digits > v.MAX_DIGITS:
        raise ExpressionError(f"a choice between decimals: {digits} digits, Spark supports at most {v.MAX_DIGITS}")
    return [decimal(v.exact_sql(value), digits, scale).sql for value in values], Value(
        "", ValueKind.DECIMAL, digits=digits, scale=scale, no_text_reason=no_text_reason
    )


def case_when(cases: Sequence[tuple[Value, Value]], otherwise: Value, context: Context) -> Value:
    """CASE WHEN: the value of the first true condition; each case is (condition, value)."""
    sqls, model = unify([*(value for _, value in cases), otherwise], context)
    conditions = [v.to_condition(condition) for condition, _ in cases]
    values = [*(value for _, value in cases), otherwise]

    def choice(parts: Sequence[str]) -> str:
        whens = " ".join(f"WHEN {test} THEN {part}" for test, part in zip(conditions, parts[:-1], strict=True))
        return f"CASE {whens} ELSE {parts[-1]} END"

    doubt = v.combined_doubt(*(condition for condition, _ in cases))
    if v.combined_doubt(*values) is not None:
        doubt = v.any_true([doubt, f"({choice([value.doubt or 'false' for value in values])})"])
    if model.kind is ValueKind.NULL:
        return replace(model, doubt=doubt)
    return replace(model, sql=choice(sqls), doubt=doubt)


def coalesce(values: Sequence[Value], context: Context) -> Value:
    """COALESCE and IFNULL."""
    sqls, model = unify(values, context)
    if model.kind is ValueKind.NULL:
        return model
    return replace(model, sql=f"coalesce({', '.join(sqls)})", doubt=v.combined_doubt(*values))


def nullif(left: Value, right: Value, context: Context) -> Value:
    """NULLIF(left, right)."""

    def null_if_equal(one: Value) -> Value:
        equal = comparison("=", one, right, context)
        sql = f"CASE WHEN {v.to_condition(equal)} THEN NULL ELSE {one.sql} END"
        return replace(one, sql=sql, doubt=v.combined_doubt(one, equal), constant=None, condition=None, quotient=None)

    return v.bind_value(left, null_if_equal)


def greatest_or_least(function: str, values: Sequence[Value], context: Context) -> Value:
    """GREATEST or LEAST of numbers or of moments; NULL if one is NULL."""
    kinds = {value.kind for value in values}
    if not (kinds <= v.NUMBERS or kinds <= v.MOMENTS):
        raise ExpressionError(f"{function}: only numbers or only dates are supported")
    if kinds == {ValueKind.DATE}:
        values = [as_date(value, context) for value in values]
    sqls, model = unify(values, context)
    # Spark's greatest and least skip NULL; an array of all values also shows whether one is NULL
    sql = v.bind_sql(
        f"array({', '.join(sqls)})",
        lambda all_: f"CASE WHEN exists({all_}, one -> one IS NULL) THEN NULL ELSE {_EXTREMES[function]}({all_}) END",
    )
    return replace(model, sql=sql, doubt=v.combined_doubt(*values))
