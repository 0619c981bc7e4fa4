"""Comparison, choice and truth in MySQL expressions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.mysql.expressions.arithmetic import as_number, decimal
from cdc_pipeline.mysql.expressions.moments import as_date, as_datetime
from cdc_pipeline.mysql.expressions.texts import (
    as_bytes,
    as_text,
    equal_texts,
    joined,
    ordered_texts,
)
from cdc_pipeline.mysql.expressions.values import (
    MAX_DIGITS,
    MOMENTS,
    NUMBERS,
    UNSIGNED_DIGITS,
    ExpressionError,
    Value,
    ValueKind,
    any_of,
    bound,
    condition_of,
    double_sql,
    doubt_of,
    doubted,
    exact_sql,
    null,
    once,
    require,
    truth,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_pipeline.mysql.expressions.values import Context

_STRINGS = frozenset({ValueKind.TEXT, ValueKind.BYTES})
_EXTREMES = {"GREATEST": "array_max", "LEAST": "array_min"}


def compared(operator: str, left: Value, right: Value, context: Context) -> Value:
    """`left operator right` for =, <>, <, <=, >, >=."""
    if ValueKind.NULL in (left.kind, right.kind):
        return null()
    for side in (left, right):
        require(side, ValueKind, f"`{operator}`")
    kinds = {left.kind, right.kind}
    if kinds & NUMBERS:
        return _compared_numbers(operator, as_number(left), as_number(right))
    if kinds & MOMENTS:
        return _compared_moments(operator, left, right, context)
    if kinds <= _STRINGS:
        return _compared_strings(operator, left, right)
    if kinds == {ValueKind.TIME} and left.scale == right.scale and operator in ("=", "<>"):
        return truth(f"({left.sql} {operator} {right.sql})", left, right)
    raise ExpressionError(f"`{operator}` of a {left.kind.value} and a {right.kind.value} value")


def _compared_numbers(operator: str, left: Value, right: Value) -> Value:
    for side in (left, right):
        require(side, NUMBERS, f"`{operator}`")
    if ValueKind.DOUBLE in (left.kind, right.kind):
        return truth(f"({double_sql(left)} {operator} {double_sql(right)})", left, right)
    if max(left.digits - left.scale, right.digits - right.scale) + max(left.scale, right.scale) > MAX_DIGITS:
        raise ExpressionError(f"`{operator}` of decimals with too many digits for Spark")
    if left.kind is right.kind is ValueKind.INTEGER and not left.wide and not right.wide:
        return truth(f"({left.sql} {operator} {right.sql})", left, right)
    return truth(f"({exact_sql(left)} {operator} {exact_sql(right)})", left, right)


def _compared_moments(operator: str, left: Value, right: Value, context: Context) -> Value:
    if left.kind is right.kind is ValueKind.TIMESTAMP:
        return truth(f"({left.sql} {operator} {right.sql})", left, right)
    sides = [as_datetime(side, context) for side in (left, right)]
    return truth(f"({sides[0].sql} {operator} {sides[1].sql})", *sides)


def _compared_strings(operator: str, left: Value, right: Value) -> Value:
    if ValueKind.BYTES in (left.kind, right.kind):
        sides = [as_bytes(left), as_bytes(right)]
        return truth(f"({sides[0].sql} {operator} {sides[1].sql})", *sides)
    if operator in ("=", "<>"):
        condition, doubt = equal_texts(left, right)
        return doubted(truth(condition if operator == "=" else f"(NOT {condition})", left, right), doubt)
    condition, doubt = ordered_texts(left, right, operator)
    return doubted(truth(condition, left, right), doubt)


def null_safe_equal(left: Value, right: Value, context: Context) -> Value:
    """`left <=> right`."""

    def made(one: Value, other: Value) -> Value:
        nulls = [f"({side.sql} IS NULL)" for side in (one, other)]
        equal = compared("=", one, other, context)
        both = f"CASE WHEN {nulls[0]} OR {nulls[1]} THEN {nulls[0]} AND {nulls[1]} ELSE {condition_of(equal)} END"
        return doubted(truth(f"({both})", one, other), equal.doubt)

    return once(left, lambda one: once(right, lambda other: made(one, other)))


def between(value: Value, low: Value, high: Value, context: Context) -> Value:
    """`value BETWEEN low AND high`."""
    return once(
        value,
        lambda x: joined_conditions("AND", [compared(">=", x, low, context), compared("<=", x, high, context)]),
    )


def among(value: Value, items: Sequence[Value], context: Context) -> Value:
    """`value IN (items)`."""
    return once(value, lambda x: joined_conditions("OR", [compared("=", x, item, context) for item in items]))


def negation(value: Value) -> Value:
    return truth(f"(NOT {condition_of(value)})", value)


def joined_conditions(operator: str, values: Sequence[Value]) -> Value:
    """AND, OR and XOR, with three values as in Spark."""
    sign = {"AND": " AND ", "OR": " OR ", "XOR": " <> "}[operator]
    return truth("(" + sign.join(condition_of(value) for value in values) + ")", *values)


def is_null(value: Value) -> Value:
    return truth(f"({value.sql} IS NULL)", value)


def is_truth(value: Value, wanted: bool) -> Value:
    return truth(f"({condition_of(value)} IS {'TRUE' if wanted else 'FALSE'})", value)


def unified(values: Sequence[Value], context: Context) -> tuple[list[str], Value]:
    """The values as Spark text of one type, and a value of that type. Raises ExpressionError where MySQL has none."""
    for value in values:
        require(value, ValueKind, "a choice of values")
    known = [value for value in values if value.kind is not ValueKind.NULL]
    if not known:
        return ["NULL" for _ in values], null()
    made, model = _of_one_kind(known, context)
    texts = iter(made)
    sqls = ["NULL" if value.kind is ValueKind.NULL else next(texts) for value in values]
    return sqls, replace(model, doubt=None, constant=None, condition=None)


def _of_one_kind(values: Sequence[Value], context: Context) -> tuple[list[str], Value]:
    kinds = {value.kind for value in values}
    if kinds <= NUMBERS:
        return _numbers(values, kinds)
    if kinds <= MOMENTS:
        if len(kinds) > 1:
            values = [as_datetime(value, context) for value in values]
        widest = max(values, key=lambda value: value.scale)
        return [value.sql for value in values], widest
    if kinds in ({ValueKind.TIME}, {ValueKind.JSON}):
        if len({value.scale for value in values}) > 1:
            raise ExpressionError("a choice of times with different digits")
        return [value.sql for value in values], values[0]
    if ValueKind.JSON in kinds:
        raise ExpressionError("a choice between JSON and other values")
    local = [as_datetime(value, context) if value.kind is ValueKind.TIMESTAMP else value for value in values]
    if ValueKind.BYTES in kinds:
        strings = [as_bytes(value) for value in local]
        return [item.sql for item in strings], joined(strings, strings[0].sql, ValueKind.BYTES)
    strings = [as_text(value) for value in local]
    return [item.sql for item in strings], joined(strings, strings[0].sql, ValueKind.TEXT)


def _numbers(values: Sequence[Value], kinds: set[ValueKind]) -> tuple[list[str], Value]:
    textless = next((value.textless for value in values if value.textless is not None), None)
    if textless == "year" and any(value.textless is None for value in values):
        textless = "sometimes year"
    if ValueKind.DOUBLE in kinds:
        return [double_sql(value) for value in values], Value("", ValueKind.DOUBLE)
    if kinds == {ValueKind.INTEGER}:
        unsigned = all(value.unsigned for value in values)
        if any(value.wide for value in values):
            sqls = [f"CAST({value.sql} AS DECIMAL(20,0))" for value in values]
            return sqls, Value("", ValueKind.INTEGER, digits=UNSIGNED_DIGITS, unsigned=unsigned, textless=textless)
        digits = max(value.digits for value in values)
        model = Value("", ValueKind.INTEGER, digits=digits, unsigned=unsigned, textless=textless)
        return [value.sql for value in values], model
    scale = max(value.scale for value in values)
    digits = max(value.digits - value.scale for value in values) + scale
    if digits > MAX_DIGITS:
        raise ExpressionError(f"a choice of decimals of {digits} digits")
    return [decimal(exact_sql(value), digits, scale).sql for value in values], Value(
        "", ValueKind.DECIMAL, digits=digits, scale=scale, textless=textless
    )


def chosen(cases: Sequence[tuple[Value, Value]], otherwise: Value, context: Context) -> Value:
    """CASE WHEN: the value of the first condition that is true."""
    sqls, model = unified([*(value for _, value in cases), otherwise], context)
    conditions = [condition_of(condition) for condition, _ in cases]
    values = [*(value for _, value in cases), otherwise]

    def choice(parts: Sequence[str]) -> str:
        whens = " ".join(f"WHEN {test} THEN {part}" for test, part in zip(conditions, parts[:-1], strict=True))
        return f"CASE {whens} ELSE {parts[-1]} END"

    doubt = doubt_of(*(condition for condition, _ in cases))
    if doubt_of(*values) is not None:
        doubt = any_of([doubt, f"({choice([value.doubt or 'false' for value in values])})"])
    if model.kind is ValueKind.NULL:
        return replace(model, doubt=doubt)
    return replace(model, sql=choice(sqls), doubt=doubt)


def first_known(values: Sequence[Value], context: Context) -> Value:
    """COALESCE and IFNULL."""
    sqls, model = unified(values, context)
    if model.kind is ValueKind.NULL:
        return model
    return replace(model, sql=f"coalesce({', '.join(sqls)})", doubt=doubt_of(*values))


def null_if(left: Value, right: Value, context: Context) -> Value:
    """NULLIF(left, right)."""

    def made(one: Value) -> Value:
        equal = compared("=", one, right, context)
        sql = f"CASE WHEN {condition_of(equal)} THEN NULL ELSE {one.sql} END"
        return replace(one, sql=sql, doubt=doubt_of(one, equal), constant=None, condition=None, quotient=None)

    return once(left, made)


def extreme(function: str, values: Sequence[Value], context: Context) -> Value:
    """GREATEST and LEAST of numbers or of moments; NULL if one is NULL."""
    kinds = {value.kind for value in values}
    if not (kinds <= NUMBERS or kinds <= MOMENTS):
        raise ExpressionError(f"{function} of other than numbers or dates")
    if kinds == {ValueKind.DATE}:
        values = [as_date(value, context) for value in values]
    sqls, model = unified(values, context)
    # Spark's own leave NULL out: an array of all of them has what is smallest and greatest, and says whether one is NULL
    sql = bound(
        f"array({', '.join(sqls)})",
        lambda all_: f"CASE WHEN exists({all_}, one -> one IS NULL) THEN NULL ELSE {_EXTREMES[function]}({all_}) END",
    )
    return replace(model, sql=sql, doubt=doubt_of(*values))
