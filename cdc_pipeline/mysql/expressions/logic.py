"""Comparisons, boolean operators and conditional functions of MySQL expressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cdc_pipeline.mysql.expressions import values as v
from cdc_pipeline.mysql.expressions.arithmetic import as_number, decimal
from cdc_pipeline.mysql.expressions.moments import as_datetime
from cdc_pipeline.mysql.expressions.texts import as_strings, combined_string, text_comparison
from cdc_pipeline.mysql.expressions.values import Context, ExpressionError, Function, Value, ValueKind

_STRINGS = frozenset({ValueKind.TEXT, ValueKind.BYTES})


def comparison(operator: str, left: Value, right: Value, context: Context) -> Value:
    """`left operator right` for `=`, `<>`, `<`, `<=`, `>` and `>=`. Raises ExpressionError for unsupported kinds."""
    kinds = {left.kind, right.kind}
    if ValueKind.NULL in kinds:
        return v.null()
    if kinds == {ValueKind.TEXT}:
        return text_comparison(operator, left, right)
    one, other = _comparable(operator, left, right, context)
    return v.boolean_value(f"({one.sql} {operator} {other.sql})", one, other)


def _comparable(operator: str, left: Value, right: Value, context: Context) -> Sequence[Value]:
    """The two values in a type in which Spark compares them as MySQL does."""
    kinds = {left.kind, right.kind}
    if kinds & v.NUMBERS:
        return _comparable_numbers(operator, [as_number(left), as_number(right)])
    if kinds == {ValueKind.TIMESTAMP}:
        return left, right
    if kinds & v.MOMENTS:
        return [as_datetime(side, context) for side in (left, right)]
    if kinds <= _STRINGS:
        return as_strings([left, right], context)
    if kinds == {ValueKind.TIME} and left.scale == right.scale and operator in ("=", "<>"):
        return left, right
    raise ExpressionError(f"`{operator}` of a {left.kind.value} and a {right.kind.value} value is not supported")


def _comparable_numbers(operator: str, sides: Sequence[Value]) -> Sequence[Value]:
    for side in sides:
        v.require_kind(side, v.NUMBERS, f"`{operator}`")
    if any(side.kind is ValueKind.DOUBLE for side in sides):
        return [replace(side, sql=v.double_sql(side)) for side in sides]
    if all(side.kind is ValueKind.INTEGER and not side.is_wide for side in sides):
        return sides
    if max(side.digits - side.scale for side in sides) + max(side.scale for side in sides) > v.MAX_DIGITS:
        raise ExpressionError(f"`{operator}`: the decimals have too many digits for Spark")
    return [replace(side, sql=v.exact_sql(side)) for side in sides]


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


def unify(values: Sequence[Value], context: Context) -> tuple[list[Value], Value]:
    """The values converted to their common type, and a model `Value` of this type.

    Raises ExpressionError if the common type is not supported.
    """
    known = [value for value in values if value.kind is not ValueKind.NULL]
    if not known:
        return list(values), v.null()
    converted, model = _unify_known(known, context)
    rest = iter(converted)
    unified = [value if value.kind is ValueKind.NULL else next(rest) for value in values]
    return unified, replace(model, doubt=None, constant=None, condition=None)


def _unify_known(values: Sequence[Value], context: Context) -> tuple[Sequence[Value], Value]:
    kinds = {value.kind for value in values}
    if kinds <= v.NUMBERS:
        return _unify_numbers(values, kinds)
    if kinds <= v.MOMENTS:
        if len(kinds) > 1:
            values = [as_datetime(value, context) for value in values]
        return values, max(values, key=lambda value: value.scale)
    if kinds in ({ValueKind.TIME}, {ValueKind.JSON}):
        if len({value.scale for value in values}) > 1:
            raise ExpressionError("a choice between times with different fractional digits is not supported")
        return values, values[0]
    if ValueKind.JSON in kinds:
        raise ExpressionError("a choice between JSON and other values is not supported")
    strings = as_strings(values, context)
    return strings, combined_string(strings, strings[0].sql, strings[0].kind)


def _unify_numbers(values: Sequence[Value], kinds: set[ValueKind]) -> tuple[Sequence[Value], Value]:
    no_text_reason = next((value.no_text_reason for value in values if value.no_text_reason is not None), None)
    if ValueKind.DOUBLE in kinds:
        return [replace(value, sql=v.double_sql(value)) for value in values], Value("", ValueKind.DOUBLE)
    if kinds == {ValueKind.INTEGER}:
        is_wide, unsigned = any(value.is_wide for value in values), all(value.unsigned for value in values)
        digits = v.UNSIGNED_DIGITS if is_wide else max(value.digits for value in values)
        model = Value("", ValueKind.INTEGER, digits=digits, unsigned=unsigned, no_text_reason=no_text_reason)
        return [
            replace(value, sql=f"CAST({value.sql} AS DECIMAL(20,0))") if is_wide else value for value in values
        ], model
    scale = max(value.scale for value in values)
    digits = max(value.digits - value.scale for value in values) + scale
    if digits > v.MAX_DIGITS:
        raise ExpressionError(f"a choice between decimals: {digits} digits, Spark supports at most {v.MAX_DIGITS}")
    model = Value("", ValueKind.DECIMAL, digits=digits, scale=scale, no_text_reason=no_text_reason)
    return [decimal(v.exact_sql(value), digits, scale, value) for value in values], model


def case_when(cases: Sequence[tuple[Value, Value]], otherwise: Value, context: Context) -> Value:
    """CASE WHEN: the value of the first true condition; each case is (condition, value)."""
    values, model = unify([*(value for _, value in cases), otherwise], context)
    conditions = [v.to_condition(condition) for condition, _ in cases]

    def choice(parts: Sequence[str]) -> str:
        whens = " ".join(f"WHEN {test} THEN {part}" for test, part in zip(conditions, parts[:-1], strict=True))
        return f"CASE {whens} ELSE {parts[-1]} END"

    doubt = v.combined_doubt(*(condition for condition, _ in cases))
    if v.combined_doubt(*values) is not None:
        doubt = v.any_true([doubt, f"({choice([value.doubt or 'false' for value in values])})"])
    if model.kind is ValueKind.NULL:
        return replace(model, doubt=doubt)
    return replace(model, sql=choice([value.sql for value in values]), doubt=doubt)


def coalesce(values: Sequence[Value], context: Context) -> Value:
    """COALESCE and IFNULL."""
    values, model = unify(values, context)
    if model.kind is ValueKind.NULL:
        return model
    return replace(model, sql=f"coalesce({v.sqls(values)})", doubt=v.combined_doubt(*values))


def nullif(values: Sequence[Value], context: Context) -> Value:
    """NULLIF(left, right)."""

    def null_if_equal(left: Value) -> Value:
        return case_when([(comparison("=", left, values[1], context), v.null())], left, context)

    return v.bind_value(values[0], null_if_equal)


def _greatest_or_least(function: str, extreme: str) -> Function:
    """GREATEST or LEAST of numbers or of moments; NULL if one is NULL."""

    def translate(values: Sequence[Value], context: Context) -> Value:
        kinds = {value.kind for value in values}
        if not (kinds <= v.NUMBERS or kinds <= v.MOMENTS):
            raise ExpressionError(f"{function}: only numbers or only dates are supported")
        values, model = unify(values, context)
        # Spark's greatest and least skip NULL; an array of all values also shows whether one is NULL
        sql = v.bind_sql(
            f"array({v.sqls(values)})",
            lambda all_: f"CASE WHEN exists({all_}, one -> one IS NULL) THEN NULL ELSE {extreme}({all_}) END",
        )
        return replace(model, sql=sql, doubt=v.combined_doubt(*values))

    return translate


FUNCTIONS: dict[str, tuple[int, int, Function]] = {
    "IFNULL": (2, 2, coalesce),
    "COALESCE": (1, 1000, coalesce),
    "NULLIF": (2, 2, nullif),
    "ISNULL": (1, 1, lambda values, _: is_null(values[0])),
    "GREATEST": (2, 1000, _greatest_or_least("GREATEST", "array_max")),
    "LEAST": (2, 1000, _greatest_or_least("LEAST", "array_min")),
}
"""MySQL name → minimum and maximum number of arguments, and the translation."""
