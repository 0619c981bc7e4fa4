"""Dates, local times and instants in MySQL expressions: conversions between them, intervals, NOW() and CURDATE().

The Spark session is in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cdc_pipeline.mysql.expressions import values as v
from cdc_pipeline.mysql.expressions.values import Context, ExpressionError, Value, ValueKind
from cdc_pipeline.mysql.types.local_times import odd_hours

_DATE_TEXT = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DATETIME_TEXT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.(\d{1,6}))?", re.ASCII)
_CALENDAR_UNITS = {"DAY": 1, "WEEK": 7, "MONTH": 1, "QUARTER": 3, "YEAR": 12}
_CLOCK_UNITS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600}
_MAX_INTERVAL = 4 * 10**11
"""Exceeds the seconds, and so the days and months, between any two dates of MySQL."""
_STEPS = (-3600, -1800, 1800, 3600)
"""Seconds by which clocks are set forward or back."""


def checked_zone(name: str) -> str:
    """Returns the name of an IANA zone. Raises ExpressionError if the zone is unknown."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ExpressionError(f"{name!r} is not an IANA time zone") from error
    return name


def local_time(value: Value, time_zone: str) -> Value:
    """A TIMESTAMP as the DATETIME of a zone."""
    sql = f"CAST(from_utc_timestamp({value.sql}, {v.sql_string(time_zone)}) AS TIMESTAMP_NTZ)"
    return Value(sql, ValueKind.DATETIME, value.doubt, scale=value.scale)


def instant(value: Value, time_zone: str) -> Value:
    """A DATETIME of a zone as TIMESTAMP; doubtful if the clock of the zone shows this time twice or never."""
    local = f"CAST({value.sql} AS TIMESTAMP)"
    zone = v.sql_string(time_zone)
    sql = f"to_utc_timestamp({local}, {zone})"
    result = Value(sql, ValueKind.TIMESTAMP, value.doubt, scale=value.scale)
    if not odd_hours(time_zone):
        return result

    def shows(step: int) -> str:
        return f"from_utc_timestamp(timestampadd(SECOND, {step}, {sql}), {zone}) = {local}"

    twice = " OR ".join(shows(step) for step in _STEPS)
    return v.add_doubts(result, f"(NOT {shows(0)} OR {twice})")


def moment(value: Value, context: Context) -> Value:
    """The value as a DATE or a local DATETIME; string constants are parsed. Raises ExpressionError for other values."""
    if value.kind is ValueKind.TEXT:
        return _constant_moment(v.constant_text(value, "text as a date"))
    v.require_kind(value, [*v.MOMENTS, ValueKind.NULL], "a date function")
    if value.kind is ValueKind.NULL:
        return Value("CAST(NULL AS TIMESTAMP_NTZ)", ValueKind.DATETIME)
    return local_time(value, context.time_zone) if value.kind is ValueKind.TIMESTAMP else value


def _constant_moment(text: str) -> Value:
    try:
        if _DATE_TEXT.fullmatch(text):
            return Value(f"DATE'{date.fromisoformat(text)}'", ValueKind.DATE)
        if match := _DATETIME_TEXT.fullmatch(text):
            fraction = match[1] or ""
            whole = datetime.fromisoformat(text[:19])
            sql = f"TIMESTAMP_NTZ'{whole:%Y-%m-%d %H:%M:%S}{'.' + fraction if fraction else ''}'"
            if whole.year >= 1000:
                return Value(sql, ValueKind.DATETIME, scale=len(fraction))
    except ValueError:
        pass
    raise ExpressionError(f"{text!r} cannot be converted to a date")


def as_date(value: Value, context: Context) -> Value:
    """The date of a moment (DATE, DATETIME, TIMESTAMP or string constant)."""
    value = moment(value, context)
    if value.kind is ValueKind.DATE:
        return value
    return Value(f"CAST({value.sql} AS DATE)", ValueKind.DATE, value.doubt)


def as_datetime(value: Value, context: Context) -> Value:
    """A moment as a local DATETIME."""
    value = moment(value, context)
    if value.kind is ValueKind.DATETIME:
        return value
    return Value(f"CAST({value.sql} AS TIMESTAMP_NTZ)", ValueKind.DATETIME, value.doubt)


def add_interval(value: Value, amount: Value, unit: str, sign: int, context: Context) -> Value:
    """A moment plus (`sign` 1) or minus (`sign` -1) an interval; NULL outside the years 1 to 9999."""
    value = moment(value, context)
    if amount.kind is ValueKind.TEXT and re.fullmatch(r"-?\d{1,9}", v.constant_text(amount, "INTERVAL")):
        amount = v.integer(f"CAST({amount.constant!s} AS BIGINT)")
    v.require_kind(amount, [ValueKind.INTEGER], f"INTERVAL of {unit}")
    near = v.bind_sql(
        amount.sql, lambda x: f"CASE WHEN {x} BETWEEN -{_MAX_INTERVAL} AND {_MAX_INTERVAL} THEN CAST({x} AS BIGINT) END"
    )
    doubt = v.combined_doubt(value, amount)
    if unit in _CALENDAR_UNITS:
        # a DATE is computed as TIMESTAMP_NTZ, because Spark stores a DATE as an INT of days, which could overflow
        factor, base, limit = _CALENDAR_UNITS[unit], "DAY" if unit in ("DAY", "WEEK") else "MONTH", 4_000_000
    elif unit in _CLOCK_UNITS:
        factor, base, limit = _CLOCK_UNITS[unit], "SECOND", _MAX_INTERVAL
        value = as_datetime(value, context)
    else:
        raise ExpressionError(f"INTERVAL of {unit} is not supported")
    if base == "MONTH":
        limit = 120_000
    steps = f"({near} * {sign * factor})"
    steps = v.bind_sql(steps, lambda x: f"CASE WHEN {x} BETWEEN -{limit} AND {limit} THEN {x} END")
    start = f"CAST({value.sql} AS TIMESTAMP_NTZ)"
    sql = null_outside_years(f"timestampadd({base}, {steps}, {start})")
    if value.kind is ValueKind.DATE:
        return Value(f"CAST({sql} AS DATE)", ValueKind.DATE, doubt)
    return Value(sql, ValueKind.DATETIME, doubt, scale=value.scale)


def null_outside_years(sql: str) -> str:
    """A TIMESTAMP_NTZ that is NULL outside the years 1 to 9999."""
    start = "TIMESTAMP_NTZ'0001-01-01 00:00:00'"
    return v.bind_sql(sql, lambda x: f"CASE WHEN {x} >= {start} AND year({x}) <= 9999 THEN {x} END")


def timestamp_diff(unit: str, values: Sequence[Value], context: Context) -> Value:
    """TIMESTAMPDIFF(unit, begin, end)."""
    if unit not in (*_CALENDAR_UNITS, *_CLOCK_UNITS):
        raise ExpressionError(f"TIMESTAMPDIFF of {unit} is not supported")
    begin, end = (as_datetime(value, context) for value in values)
    return v.integer(f"timestampdiff({unit}, {begin.sql}, {end.sql})", begin, end, digits=12)


def now(values: Sequence[Value], context: Context) -> Value:
    """NOW([digits]), as an instant.

    It is the start of the statement: doubtful if only a later time is known, or only its second.
    """
    if context.now is None:
        raise ExpressionError("the current time is not available in this expression")
    scale = v.constant_integer(values[0], "NOW") if values else 0
    if not 0 <= scale <= 6:
        raise ExpressionError(f"NOW({scale}): expected 0 to 6 digits")
    step = 10 ** max(6 - scale, 3)
    micros = context.now.ms * 1000 // step * step
    doubt = None if context.now.is_start and scale == 0 else "true"
    return Value(f"timestamp_micros({micros}L)", ValueKind.TIMESTAMP, doubt, scale=scale)
