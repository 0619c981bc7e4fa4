"""Dates and local times as values of MySQL expressions: read, shifted and now."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import TYPE_CHECKING

from cdc_pipeline.mysql.expressions.time_zones import local_time
from cdc_pipeline.mysql.expressions.values import (
    MOMENTS,
    ExpressionError,
    Value,
    ValueKind,
    bound,
    constant_integer,
    constant_text,
    doubt_of,
    integer,
    require,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_pipeline.mysql.expressions.values import Context

_DATE_TEXT = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DATETIME_TEXT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.(\d{1,6}))?", re.ASCII)
_CALENDAR_UNITS = {"DAY": 1, "WEEK": 7, "MONTH": 1, "QUARTER": 3, "YEAR": 12}
_CLOCK_UNITS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600}
_FAR = 4 * 10**11
"""More seconds, and so days and months, than there are between any two dates of MySQL's."""


def moment(value: Value, context: Context) -> Value:
    """A DATE or local DATETIME of a value; string constants are read. Raises ExpressionError for all else."""
    if value.kind is ValueKind.TEXT:
        return _constant_moment(constant_text(value, "text as a date"))
    require(value, [*MOMENTS, ValueKind.NULL], "a date function")
    if value.kind is ValueKind.NULL:
        return Value("CAST(NULL AS TIMESTAMP_NTZ)", ValueKind.DATETIME)
    return local_time(value, context.time_zone) if value.kind is ValueKind.TIMESTAMP else value


def _constant_moment(text: str) -> Value:
    try:
        if _DATE_TEXT.fullmatch(text):
            return Value(f"DATE'{date.fromisoformat(text)}'", ValueKind.DATE)
        if found := _DATETIME_TEXT.fullmatch(text):
            fraction = found[1] or ""
            whole = datetime.fromisoformat(text[:19])
            sql = f"TIMESTAMP_NTZ'{whole:%Y-%m-%d %H:%M:%S}{'.' + fraction if fraction else ''}'"
            if whole.year >= 1000:
                return Value(sql, ValueKind.DATETIME, scale=len(fraction))
    except ValueError:
        pass
    raise ExpressionError(f"{text!r} as a date")


def as_date(value: Value, context: Context) -> Value:
    """The day of a moment."""
    found = moment(value, context)
    if found.kind is ValueKind.DATE:
        return found
    return Value(f"CAST({found.sql} AS DATE)", ValueKind.DATE, found.doubt)


def as_datetime(value: Value, context: Context) -> Value:
    """A moment as a local DATETIME."""
    found = moment(value, context)
    if found.kind is ValueKind.DATETIME:
        return found
    return Value(f"CAST({found.sql} AS TIMESTAMP_NTZ)", ValueKind.DATETIME, found.doubt)


def shifted(value: Value, amount: Value, unit: str, sign: int, context: Context) -> Value:
    """A moment plus (`sign` 1) or minus (-1) an interval. NULL outside of the years 1 to 9999."""
    found = moment(value, context)
    if amount.kind is ValueKind.TEXT and re.fullmatch(r"-?\d{1,9}", constant_text(amount, "INTERVAL")):
        amount = integer(f"CAST({amount.constant!s} AS BIGINT)")
    require(amount, [ValueKind.INTEGER], f"INTERVAL of {unit}")
    near = bound(amount.sql, lambda x: f"CASE WHEN {x} BETWEEN -{_FAR} AND {_FAR} THEN CAST({x} AS BIGINT) END")
    doubt = doubt_of(found, amount)
    if unit in _CALENDAR_UNITS:
        # DATE too goes by way of DATETIME, whose sums cannot overflow Spark's INT of days
        factor, base, limit = _CALENDAR_UNITS[unit], "DAY" if unit in ("DAY", "WEEK") else "MONTH", 4_000_000
    elif unit in _CLOCK_UNITS:
        factor, base, limit = _CLOCK_UNITS[unit], "SECOND", _FAR
        found = as_datetime(found, context)
    else:
        raise ExpressionError(f"INTERVAL of {unit}")
    if base == "MONTH":
        limit = 120_000
    steps = f"({near} * {sign * factor})"
    steps = bound(steps, lambda x: f"CASE WHEN {x} BETWEEN -{limit} AND {limit} THEN {x} END")
    start = f"CAST({found.sql} AS TIMESTAMP_NTZ)"
    sql = in_years(f"timestampadd({base}, {steps}, {start})")
    if found.kind is ValueKind.DATE:
        return Value(f"CAST({sql} AS DATE)", ValueKind.DATE, doubt)
    return Value(sql, ValueKind.DATETIME, doubt, scale=found.scale)


def in_years(sql: str) -> str:
    """TIMESTAMP_NTZ text that is NULL outside of the years 1 to 9999."""
    start = "TIMESTAMP_NTZ'0001-01-01 00:00:00'"
    return bound(sql, lambda x: f"CASE WHEN {x} >= {start} AND year({x}) <= 9999 THEN {x} END")


def difference(unit: str, values: Sequence[Value], context: Context) -> Value:
    """TIMESTAMPDIFF(unit, begin, end)."""
    if unit not in (*_CALENDAR_UNITS, *_CLOCK_UNITS):
        raise ExpressionError(f"TIMESTAMPDIFF of {unit}")
    begin, end = (as_datetime(value, context) for value in values)
    return integer(f"timestampdiff({unit}, {begin.sql}, {end.sql})", begin, end, digits=12)


def now(values: Sequence[Value], context: Context) -> Value:
    """NOW([digits]), as an instant."""
    if context.now_ms is None:
        raise ExpressionError("the time now, where no time is given")
    scale = constant_integer(values[0], "NOW") if values else 0
    if not 0 <= scale <= 6:
        raise ExpressionError(f"NOW({scale})")
    step = 10 ** max(6 - scale, 3)
    micros = context.now_ms * 1000 // step * step
    return Value(f"timestamp_micros({micros}L)", ValueKind.TIMESTAMP, scale=scale)


def utc_now(values: Sequence[Value], context: Context) -> Value:
    return local_time(now(values, context), "UTC")


def today(values: Sequence[Value], context: Context) -> Value:
    if values:
        raise ExpressionError("CURDATE with an argument")
    return as_date(now([], context), context)


def midnight_after(value: Value) -> str:
    """Whether a DATETIME is the day after once its fraction of a second is rounded."""
    return f"(date_format({value.sql}, 'HH:mm:ss') = '23:59:59' AND {value.sql} >= {_half_to_midnight(value.sql)})"


def _half_to_midnight(sql: str) -> str:
    return f"timestampadd(MICROSECOND, 86399500000, CAST(CAST({sql} AS DATE) AS TIMESTAMP_NTZ))"
