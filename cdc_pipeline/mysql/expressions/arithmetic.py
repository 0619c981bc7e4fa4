"""Arithmetic of MySQL expressions: exact numbers as DECIMAL, each operation in a form that cannot fail a job."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.mysql.expressions.values import (
    MAX_DIGITS,
    NUMBERS,
    SIGNED_DIGITS,
    ExpressionError,
    Value,
    ValueKind,
    bound,
    constant_integer,
    decimal_literal,
    double_sql,
    doubt_of,
    exact_sql,
    integer,
    integer_literal,
    null,
    ranged_integer,
    require,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_EXACT = frozenset({ValueKind.INTEGER, ValueKind.DECIMAL})
_DIVISION_DIGITS = 4
"""MySQL's div_precision_increment, by default; TiDB has the same."""
_MAX_SCALE = 30
_OPERATIONS = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}
_WHOLE_QUOTIENT_DIGITS = 32
"""Digits before the point that a division of DECIMALs keeps in Spark, whatever its operands."""


def arithmetic(operator: str, left: Value, right: Value) -> Value:
    """`left operator right` for + - and *."""
    if ValueKind.NULL in (left.kind, right.kind):
        return null()
    for side in (left, right):
        require(side, NUMBERS, f"`{operator}`")
    function = _OPERATIONS[operator]
    if ValueKind.DOUBLE in (left.kind, right.kind):
        return finite(f"({double_sql(left)} {operator} {double_sql(right)})", left, right)
    if left.kind is right.kind is ValueKind.INTEGER:
        # 20 digits on both sides leave room for any sum; a product beyond 38 is beyond BIGINT too
        sides = [f"CAST({side.sql} AS DECIMAL(20,0))" for side in (left, right)]
        return ranged_integer(f"{function}({sides[0]}, {sides[1]})", left.unsigned or right.unsigned, left, right)
    if operator == "*":
        digits, scale = left.digits + right.digits + 1, left.scale + right.scale
    else:
        scale = max(left.scale, right.scale)
        digits = max(left.digits - left.scale, right.digits - right.scale) + scale + 1
    _check_digits(digits, scale, f"`{operator}`")
    return decimal(f"{function}({exact_sql(left)}, {exact_sql(right)})", digits, scale, left, right)


def _check_digits(digits: int, scale: int, where: str) -> None:
    if digits > MAX_DIGITS or scale > _MAX_SCALE:
        raise ExpressionError(f"{where}: a decimal of {digits} digits, more than Spark's {MAX_DIGITS}")


def decimal(sql: str, digits: int, scale: int, *sources: Value) -> Value:
    """A DECIMAL(digits, scale), to which `sql` is cast."""
    typed = f"try_cast({sql} AS DECIMAL({digits},{scale}))"
    return Value(typed, ValueKind.DECIMAL, doubt_of(*sources), digits=digits, scale=scale)


def finite(sql: str, *sources: Value) -> Value:
    """A DOUBLE; NULL where it is infinite or no number, where MySQL refuses the row."""
    checked = bound(sql, lambda x: f"CASE WHEN abs({x}) < double('Infinity') THEN {x} END")
    return Value(checked, ValueKind.DOUBLE, doubt_of(*sources))


def negated(value: Value) -> Value:
    require(value, [*NUMBERS, ValueKind.NULL], "`-`")
    if value.kind is ValueKind.NULL:
        return value
    if value.kind is ValueKind.INTEGER:
        if isinstance(value.constant, int) and value.constant <= 2**63:
            return integer_literal(-value.constant)
        return ranged_integer(f"(- CAST({value.sql} AS DECIMAL(20,0)))", False, value)
    return replace(value, sql=f"(- {value.sql})", constant=None)


def quotient(left: Value, right: Value) -> Value:
    """`left / right`: as text a DECIMAL with four more digits than `left`, rounded."""
    if ValueKind.NULL in (left.kind, right.kind):
        return null()
    for side in (left, right):
        require(side, NUMBERS, "`/`")
    if ValueKind.DOUBLE in (left.kind, right.kind):
        return finite(f"try_divide({double_sql(left)}, {double_sql(right)})", left, right)
    value = rounded_quotient(left, right, min(left.scale + _DIVISION_DIGITS, _MAX_SCALE))
    return replace(value, quotient=(left, right))


def rounded_quotient(left: Value, right: Value, scale: int) -> Value:
    """`left / right` rounded half away from zero to `scale` digits."""
    whole, digits = _truncated_quotient(left, right, scale + 1)
    _check_digits(digits + 2, scale, "`/`")
    tenths = f"(CAST({whole} AS DECIMAL({digits},0)) * {_power(-scale - 1)})"
    return decimal(f"round({tenths}, {scale})", digits + 1, scale, left, right)


def _power(exponent: int) -> str:
    """A power of ten as DECIMAL text."""
    if exponent >= 0:
        return f"CAST('1{'0' * exponent}' AS DECIMAL({exponent + 1},0))"
    return f"CAST('0.{'0' * (-exponent - 1)}1' AS DECIMAL({-exponent},{-exponent}))"


def _truncated_quotient(left: Value, right: Value, places: int) -> tuple[str, int]:
    """`left / right * 10^places` without its fraction, as DECIMAL text, and its most digits; NULL by zero."""
    shifted = left.digits + places + 2
    digits = shifted - left.scale + right.scale
    common = max(shifted - left.scale, right.digits - right.scale) + max(left.scale, right.scale) + 1
    if digits > _WHOLE_QUOTIENT_DIGITS or common > MAX_DIGITS:
        raise ExpressionError(f"`/` of decimals of {left.digits} and {right.digits} digits, too many for Spark")

    def over(dividend: str, divisor: str) -> str:
        # without its remainder the dividend divides exactly, so nothing is rounded
        return f"try_cast(try_divide({dividend} - try_mod({dividend}, {divisor}), {divisor}) AS DECIMAL({digits},0))"

    dividend = f"({exact_sql(left)} * {_power(places)})"
    return bound(dividend, lambda x: bound(exact_sql(right), lambda y: over(x, y))), digits


def whole_quotient(left: Value, right: Value) -> Value:
    """`left DIV right`."""
    if ValueKind.NULL in (left.kind, right.kind):
        return null()
    for side in (left, right):
        require(side, _EXACT, "`DIV`")
    whole, _ = _truncated_quotient(left, right, 0)
    return ranged_integer(whole, left.unsigned or right.unsigned, left, right)


def remainder(left: Value, right: Value) -> Value:
    """`left % right`."""
    if ValueKind.NULL in (left.kind, right.kind):
        return null()
    for side in (left, right):
        require(side, _EXACT, "`%`")
    scale = max(left.scale, right.scale)
    digits = max(left.digits - left.scale, right.digits - right.scale) + scale
    _check_digits(digits, scale, "`%`")
    sql = f"try_mod({exact_sql(left)}, {exact_sql(right)})"
    if left.kind is right.kind is ValueKind.INTEGER:
        if left.unsigned:
            typed = f"try_cast({sql} AS DECIMAL(20,0))"
            return Value(typed, ValueKind.INTEGER, doubt_of(left, right), digits=20, unsigned=True)
        return integer(f"try_cast({sql} AS BIGINT)", left, right)
    return decimal(sql, digits, scale, left, right)


def rounded(value: Value, places: int) -> Value:
    """The number rounded half away from zero to `places` digits after the point, which may be negative."""
    if value.quotient is not None and 0 <= places <= value.scale:
        return rounded_quotient(*value.quotient, places)
    require(value, _EXACT, "ROUND")
    if value.kind is ValueKind.INTEGER and places >= 0:
        return value
    if places > value.scale or places < -MAX_DIGITS:
        raise ExpressionError(f"ROUND to {places} digits of a number with {value.scale}")
    if value.kind is ValueKind.INTEGER:
        return ranged_integer(f"round({exact_sql(value)}, {places})", value.unsigned, value)
    scale = max(places, 0)
    digits = min(value.digits - value.scale + scale + 1, MAX_DIGITS)
    return replace(decimal(f"round({value.sql}, {places})", digits, scale, value), unsigned=value.unsigned)


def _round(values: Sequence[Value]) -> Value:
    places = constant_integer(values[1], "ROUND") if len(values) > 1 else 0
    return rounded(values[0], places)


def _truncate(values: Sequence[Value]) -> Value:
    value, places = values[0], constant_integer(values[1], "TRUNCATE")
    require(value, _EXACT, "TRUNCATE")
    if value.kind is ValueKind.INTEGER and places >= 0:
        return value
    if not 0 <= places <= value.scale:
        raise ExpressionError(f"TRUNCATE to {places} digits of a number with {value.scale}")
    sql = bound(value.sql, lambda x: f"CASE WHEN {x} < 0 THEN ceil({x}, {places}) ELSE floor({x}, {places}) END")
    return decimal(sql, value.digits - value.scale + places + 1, places, value)


def _whole(function: str) -> Callable[[Sequence[Value]], Value]:
    """FLOOR and CEILING."""

    def made(values: Sequence[Value]) -> Value:
        value = values[0]
        require(value, NUMBERS, function.upper())
        if value.kind is ValueKind.INTEGER:
            return value
        if value.kind is ValueKind.DOUBLE:
            # beyond 2^53 a DOUBLE has no fraction, and Spark's BIGINT would end
            whole = bound(
                value.sql, lambda x: f"CASE WHEN abs({x}) < 9e15D THEN CAST({function}({x}) AS DOUBLE) ELSE {x} END"
            )
            return Value(whole, ValueKind.DOUBLE, value.doubt)
        if value.digits - value.scale >= SIGNED_DIGITS - 1:
            raise ExpressionError(f"{function.upper()} of a decimal that may be beyond BIGINT")
        return integer(f"CAST({function}({value.sql}) AS BIGINT)", value)

    return made


def _abs(values: Sequence[Value]) -> Value:
    value = values[0]
    require(value, NUMBERS, "ABS")
    if value.kind is ValueKind.INTEGER:
        return ranged_integer(f"abs(CAST({value.sql} AS DECIMAL(20,0)))", value.unsigned, value)
    return replace(value, sql=f"abs({value.sql})", constant=None)


def _sign(values: Sequence[Value]) -> Value:
    require(values[0], NUMBERS, "SIGN")
    return integer(f"CAST(sign({values[0].sql}) AS BIGINT)", values[0], digits=1)


def as_number(value: Value) -> Value:
    """The number of a string constant that is nothing but a number; other values as they are.

    Raises ExpressionError for other text: what MySQL reads of it depends on the row.
    """
    if value.kind is not ValueKind.TEXT:
        return value
    text = value.constant
    if not isinstance(text, str) or not text.isascii() or not text.removeprefix("-").replace(".", "", 1).isdigit():
        raise ExpressionError("text where MySQL needs a number")
    plain = text.removeprefix("-")
    if plain.startswith(".") or plain.endswith("."):
        raise ExpressionError(f"{text!r} as a number")
    found = decimal_literal(plain) if "." in plain else integer_literal(int(plain))
    return negated(found) if text.startswith("-") else found


def as_operand(value: Value) -> Value:
    """What a value is in arithmetic: text becomes a DOUBLE, and years and bits are integers."""
    if value.kind is ValueKind.TEXT:
        return Value(double_sql(as_number(value)), ValueKind.DOUBLE, value.doubt)
    return value


FUNCTIONS: dict[str, tuple[int, int, Callable[[Sequence[Value]], Value]]] = {
    "MOD": (2, 2, lambda values: remainder(as_operand(values[0]), as_operand(values[1]))),
    "ROUND": (1, 2, _round),
    "TRUNCATE": (2, 2, _truncate),
    "FLOOR": (1, 1, _whole("floor")),
    "CEIL": (1, 1, _whole("ceil")),
    "CEILING": (1, 1, _whole("ceil")),
    "ABS": (1, 1, _abs),
    "SIGN": (1, 1, _sign),
}
"""By MySQL's name: the fewest and the most arguments, and what makes the value."""
