"""Arithmetic of MySQL expressions. Exact numbers are computed as DECIMAL, and no operation can fail a job."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from cdc_pipeline.mysql.expressions import values as v
from cdc_pipeline.mysql.expressions.values import Context, ExpressionError, Function, Value, ValueKind

_EXACT = frozenset({ValueKind.INTEGER, ValueKind.DECIMAL})
_DIVISION_DIGITS = 4
"""The default `div_precision_increment` of MySQL and TiDB."""
_MAX_SCALE = 30
_WHOLE_QUOTIENT_DIGITS = 32
"""Integer digits that Spark keeps in a division of DECIMALs, whatever its operands."""


def number_literal(text: str) -> Value:
    """The value of a number as MySQL writes it. Raises ExpressionError for other text."""
    digits = text.removeprefix("-")
    if re.fullmatch(r"[0-9]{1,40}", digits):
        return v.integer_literal(int(text))
    if re.fullmatch(r"\d*\.\d+|\d+\.", digits, re.ASCII):
        decimal = v.decimal_literal(digits)
        return decimal if text == digits else replace(decimal, sql=f"(- {decimal.sql})")
    if re.fullmatch(r"(?:\d+\.?\d*|\.\d+)[eE][-+]?\d{1,3}", text, re.ASCII) and abs(float(text)) < float("inf"):
        return Value(f"CAST('{float(text)!r}' AS DOUBLE)", ValueKind.DOUBLE)
    raise ExpressionError(f"not a valid number: {text[:40]}")


def as_number(value: Value) -> Value:
    """Converts a string constant that contains only a number to this number; returns other values unchanged.

    Raises ExpressionError for other text.
    """
    if value.kind is not ValueKind.TEXT:
        return value
    text = value.constant
    if not isinstance(text, str) or not re.fullmatch(r"-?\d+(?:\.\d+)?", text, re.ASCII):
        raise ExpressionError("text where a number is expected")
    return number_literal(text)


def operation(operator: str, left: Value, right: Value) -> Value:
    """`left operator right`, by an operator of `_OPERATORS`. Raises ExpressionError if the result needs too many digits."""
    if ValueKind.NULL in (left.kind, right.kind):
        return v.null()
    kinds, translate = _OPERATORS[operator]
    for side in (left, right):
        v.require_kind(side, kinds, f"`{operator}`")
    return translate(left, right)


def _sum_or_product(operator: str, function: str) -> Callable[[Value, Value], Value]:
    def translate(left: Value, right: Value) -> Value:
        if ValueKind.DOUBLE in (left.kind, right.kind):
            return _finite_double(f"({v.double_sql(left)} {operator} {v.double_sql(right)})", left, right)
        if left.kind is right.kind is ValueKind.INTEGER:
            # any sum fits DECIMAL(21,0); a product of more than 38 digits is out of range for BIGINT too
            sides = [f"CAST({side.sql} AS DECIMAL(20,0))" for side in (left, right)]
            exact = f"{function}({sides[0]}, {sides[1]})"
            return v.integer_in_range(exact, left.unsigned or right.unsigned, left, right)
        if operator == "*":
            digits, scale = left.digits + right.digits + 1, left.scale + right.scale
        else:
            scale = max(left.scale, right.scale)
            digits = max(left.digits - left.scale, right.digits - right.scale) + scale + 1
        _check_digits(digits, scale, f"`{operator}`")
        return decimal(f"{function}({v.exact_sql(left)}, {v.exact_sql(right)})", digits, scale, left, right)

    return translate


def _check_digits(digits: int, scale: int, where: str) -> None:
    if digits > v.MAX_DIGITS or scale > _MAX_SCALE:
        raise ExpressionError(
            f"{where}: the decimal has {digits} digits (scale {scale}), Spark supports at most {v.MAX_DIGITS}"
        )


def decimal(sql: str, digits: int, scale: int, *sources: Value) -> Value:
    """`sql` cast to DECIMAL(digits, scale); NULL if it does not fit."""
    typed = f"try_cast({sql} AS DECIMAL({digits},{scale}))"
    return Value(typed, ValueKind.DECIMAL, v.combined_doubt(*sources), digits=digits, scale=scale)


def _finite_double(sql: str, *sources: Value) -> Value:
    """A DOUBLE; NULL if it is infinite or NaN, where MySQL raises an error."""
    checked = v.bind_sql(sql, lambda x: f"CASE WHEN abs({x}) < double('Infinity') THEN {x} END")
    return Value(checked, ValueKind.DOUBLE, v.combined_doubt(*sources))


def negative(value: Value) -> Value:
    """`-value`."""
    v.require_kind(value, [*v.NUMBERS, ValueKind.NULL], "`-`")
    if value.kind is ValueKind.NULL:
        return value
    if value.kind is ValueKind.INTEGER:
        if isinstance(value.constant, int) and value.constant <= 2**63:
            return v.integer_literal(-value.constant)
        return v.integer_in_range(f"(- CAST({value.sql} AS DECIMAL(20,0)))", False, value)
    return replace(value, sql=f"(- {value.sql})", constant=None)


def _quotient(left: Value, right: Value) -> Value:
    """`left / right`: a QUOTIENT with the scale of `left` plus 4, or a DOUBLE."""
    if ValueKind.DOUBLE in (left.kind, right.kind):
        return _finite_double(f"try_divide({v.double_sql(left)}, {v.double_sql(right)})", left, right)
    value = _rounded_quotient(left, right, min(left.scale + _DIVISION_DIGITS, _MAX_SCALE))
    return replace(value, kind=ValueKind.QUOTIENT, quotient=(left, right))


def _rounded_quotient(left: Value, right: Value, scale: int) -> Value:
    """`left / right`, rounded half away from zero to `scale` fractional digits."""
    whole, digits = _truncated_quotient(left, right, scale + 1)
    _check_digits(digits + 2, scale, "`/`")
    tenths = f"(CAST({whole} AS DECIMAL({digits},0)) * {_power(-scale - 1)})"
    return decimal(f"round({tenths}, {scale})", digits + 1, scale, left, right)


def _power(exponent: int) -> str:
    """A power of ten as a DECIMAL literal."""
    if exponent >= 0:
        return f"CAST('1{'0' * exponent}' AS DECIMAL({exponent + 1},0))"
    return f"CAST('0.{'0' * (-exponent - 1)}1' AS DECIMAL({-exponent},{-exponent}))"


def _truncated_quotient(left: Value, right: Value, places: int) -> tuple[str, int]:
    """SQL of `left / right * 10^places` truncated to an integer, and its maximum digits. NULL for a division by zero."""
    shifted = left.digits + places + 2
    digits = shifted - left.scale + right.scale
    common = max(shifted - left.scale, right.digits - right.scale) + max(left.scale, right.scale) + 1
    if digits > _WHOLE_QUOTIENT_DIGITS or common > v.MAX_DIGITS:
        raise ExpressionError(f"`/` of decimals with {left.digits} and {right.digits} digits: too many for Spark")

    def over(dividend: str, divisor: str) -> str:
        # subtracting the remainder first makes the division exact, so Spark does not round
        return f"try_cast(try_divide({dividend} - try_mod({dividend}, {divisor}), {divisor}) AS DECIMAL({digits},0))"

    dividend = f"({v.exact_sql(left)} * {_power(places)})"
    return v.bind_sql(dividend, lambda x: v.bind_sql(v.exact_sql(right), lambda y: over(x, y))), digits


def _integer_quotient(left: Value, right: Value) -> Value:
    whole, _ = _truncated_quotient(left, right, 0)
    return v.integer_in_range(whole, left.unsigned or right.unsigned, left, right)


def _remainder(left: Value, right: Value) -> Value:
    scale = max(left.scale, right.scale)
    digits = max(left.digits - left.scale, right.digits - right.scale) + scale
    _check_digits(digits, scale, "`%`")
    sql = f"try_mod({v.exact_sql(left)}, {v.exact_sql(right)})"
    if left.kind is right.kind is ValueKind.INTEGER:
        return v.integer_in_range(sql, left.unsigned, left, right)
    return decimal(sql, digits, scale, left, right)


_OPERATORS: dict[str, tuple[Collection[ValueKind], Callable[[Value, Value], Value]]] = {
    "+": (v.NUMBERS, _sum_or_product("+", "try_add")),
    "-": (v.NUMBERS, _sum_or_product("-", "try_subtract")),
    "*": (v.NUMBERS, _sum_or_product("*", "try_multiply")),
    "/": (v.NUMBERS, _quotient),
    "DIV": (_EXACT, _integer_quotient),
    "%": (_EXACT, _remainder),
}
"""Operator → the kinds of its operands, and the translation."""


def rounded_number(value: Value, places: int) -> Value:
    """The number rounded half away from zero to `places` fractional digits, which may be negative."""
    if value.quotient is not None and 0 <= places <= value.scale:
        return _rounded_quotient(*value.quotient, places)
    v.require_kind(value, _EXACT, "ROUND")
    if value.kind is ValueKind.INTEGER and places >= 0:
        return value
    if places > value.scale or places < -v.MAX_DIGITS:
        raise ExpressionError(f"ROUND to {places} digits: the number has {value.scale} fractional digits")
    if value.kind is ValueKind.INTEGER:
        return v.integer_in_range(f"round({v.exact_sql(value)}, {places})", value.unsigned, value)
    scale = max(places, 0)
    digits = min(value.digits - value.scale + scale + 1, v.MAX_DIGITS)
    return replace(decimal(f"round({value.sql}, {places})", digits, scale, value), unsigned=value.unsigned)


def _round(values: Sequence[Value], _: Context) -> Value:
    return rounded_number(values[0], v.constant_integer(values[1], "ROUND") if len(values) > 1 else 0)


def _floor_or_ceil(function: str) -> Function:
    def translate(values: Sequence[Value], _: Context) -> Value:
        value = values[0]
        v.require_kind(value, v.NUMBERS, function.upper())
        if value.kind is ValueKind.INTEGER:
            return value
        if value.kind is ValueKind.DOUBLE:
            # beyond 2^53 a DOUBLE has no fraction, and BIGINT would overflow
            whole = v.bind_sql(
                value.sql, lambda x: f"CASE WHEN abs({x}) < 9e15D THEN CAST({function}({x}) AS DOUBLE) ELSE {x} END"
            )
            return Value(whole, ValueKind.DOUBLE, value.doubt)
        if value.digits - value.scale >= v.SIGNED_DIGITS - 1:
            raise ExpressionError(f"{function.upper()}: the decimal may be out of range for BIGINT")
        return v.integer(f"CAST({function}({value.sql}) AS BIGINT)", value)

    return translate


def _abs(values: Sequence[Value], _: Context) -> Value:
    value = values[0]
    v.require_kind(value, v.NUMBERS, "ABS")
    if value.kind is ValueKind.INTEGER:
        return v.integer_in_range(f"abs(CAST({value.sql} AS DECIMAL(20,0)))", value.unsigned, value)
    return replace(value, sql=f"abs({value.sql})", constant=None)


FUNCTIONS: dict[str, tuple[int, int, Function]] = {
    "MOD": (2, 2, lambda values, _: operation("%", *values)),
    "ROUND": (1, 2, _round),
    "FLOOR": (1, 1, _floor_or_ceil("floor")),
    **dict.fromkeys(("CEIL", "CEILING"), (1, 1, _floor_or_ceil("ceil"))),
    "ABS": (1, 1, _abs),
}
"""MySQL name → minimum and maximum number of arguments, and the translation."""
