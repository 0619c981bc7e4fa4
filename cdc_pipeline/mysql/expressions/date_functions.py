"""Dates and times in MySQL expressions. What a mirror has as NULL because it is a zero date is NULL here too."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.mysql.expressions.moments import as_date, as_datetime, now, today, utc_now
from cdc_pipeline.mysql.expressions.time_zones import instant, local_time
from cdc_pipeline.mysql.expressions.values import (
    LITERAL,
    ExpressionError,
    Value,
    ValueKind,
    bound,
    constant_integer,
    constant_text,
    doubted,
    integer,
    quoted,
    require,
    small,
)

if TYPE_CHECKING:
    from cdc_pipeline.mysql.expressions.values import Context

_FIRST_DAY = 366
"""TO_DAYS('0001-01-01')."""
_TIME_PATTERN = "^(-?)(\\d{2,3}):(\\d\\d):(\\d\\d)(?:\\.(\\d{1,6}))?\\z"
_FORMATS = {
    "Y": "yyyy",
    "y": "yy",
    "m": "MM",
    "c": "M",
    "d": "dd",
    "e": "d",
    "j": "DDD",
    "H": "HH",
    "k": "H",
    "h": "hh",
    "I": "hh",
    "l": "h",
    "i": "mm",
    "s": "ss",
    "S": "ss",
    "f": "SSSSSS",
    "p": "a",
    "T": "HH:mm:ss",
    "r": "hh:mm:ss a",
    "%": "%",
}
"""The specifiers of DATE_FORMAT that depend on nothing but the moment, as Spark's."""


Function = Callable[[Sequence[Value], "Context"], Value]


def _of_day(template: str) -> Function:
    def made(values: Sequence[Value], context: Context) -> Value:
        day = as_date(values[0], context)
        return small(template.format(day.sql), day)

    return made


def _of_clock(function: str, group: int) -> Function:
    """HOUR, MINUTE and SECOND, of moments and of times, whose hours go beyond 23."""

    def made(values: Sequence[Value], context: Context) -> Value:
        value = values[0]
        if value.kind is ValueKind.TIME:
            return integer(f"try_cast({_time_part(value.sql, group)} AS BIGINT)", value, digits=3)
        found = as_datetime(value, context)
        return small(f"{function}({found.sql})", found)

    return made


def _time_part(text: str, group: int) -> str:
    return f"regexp_extract({text}, {quoted(_TIME_PATTERN)}, {group})"


def _microsecond(values: Sequence[Value], context: Context) -> Value:
    if values[0].kind is ValueKind.TIME:
        digits = f"rpad({_time_part(values[0].sql, 5)}, 6, '0')"
        return integer(f"try_cast({digits} AS BIGINT)", values[0], digits=6)
    found = as_datetime(values[0], context)
    return small(f"date_format({found.sql}, 'SSSSSS')", found)


def _to_days(values: Sequence[Value], context: Context) -> Value:
    day = as_date(values[0], context)
    return small(_day_number(day.sql), day)


def _day_number(day: str) -> str:
    return f"(datediff({day}, DATE'0001-01-01') + {_FIRST_DAY})"


def _to_seconds(values: Sequence[Value], context: Context) -> Value:
    found = as_datetime(values[0], context)
    # whole seconds, rounded down as the fraction is left out
    sql = f"(unix_seconds(CAST({found.sql} AS TIMESTAMP)) + {_EPOCH_SECONDS})"
    return integer(sql, found, digits=12)


_EPOCH_SECONDS = 719_528 * 86_400
"""TO_SECONDS('1970-01-01')."""


def _time_to_sec(values: Sequence[Value], context: Context) -> Value:
    value = values[0]
    if value.kind is not ValueKind.TIME:
        found = as_datetime(value, context)
        sql = f"(hour({found.sql}) * 3600 + minute({found.sql}) * 60 + second({found.sql}))"
        return small(sql, found)

    def signed(text: str) -> str:
        parts = [f"try_cast({_time_part(text, group)} AS BIGINT)" for group in (2, 3, 4)]
        return f"(({parts[0]} * 3600 + {parts[1]} * 60 + {parts[2]}) * CASE WHEN {text} LIKE '-%' THEN -1 ELSE 1 END)"

    return integer(bound(value.sql, signed), value, digits=7)


def _date_difference(values: Sequence[Value], context: Context) -> Value:
    days = [as_date(value, context) for value in values]
    return small(f"datediff({days[0].sql}, {days[1].sql})", *days)


def _week_start(day: str, mode: int) -> str:
    """The first day of the week, Monday in the modes with an odd number, moved to the day that names its year."""
    since = f"weekday({day})" if mode % 2 else f"(dayofweek({day}) - 1)"
    # weeks belong to the year that has most of their days, in the other modes to that of their first day
    return f"date_add({day}, {3 if mode in (1, 3, 4, 6) else 0} - {since})"


def _week_mode(values: Sequence[Value], where: str) -> int:
    mode = constant_integer(values[1], where) if len(values) > 1 else 0
    if not 0 <= mode <= 7:
        raise ExpressionError(f"{where} in mode {mode}")
    return mode


def _week(values: Sequence[Value], context: Context) -> Value:
    """WEEK; without a mode it is 0, the server's default_week_format by default."""
    day, mode = as_date(values[0], context), _week_mode(values, "WEEK")
    if mode in (2, 3, 6, 7):
        return small(bound(day.sql, lambda x: f"((dayofyear({_week_start(x, mode)}) + 6) DIV 7)"), day)
    # week 0 is what lies before the first week
    sql = bound(day.sql, lambda x: f"((datediff({_week_start(x, mode)}, trunc({x}, 'YEAR')) + 7) DIV 7)")
    return small(sql, day)


def _year_week(values: Sequence[Value], context: Context) -> Value:
    day, mode = as_date(values[0], context), _week_mode(values, "YEARWEEK")

    def number(text: str) -> str:
        named = _week_start(text, mode)
        return f"(year({named}) * 100 + (dayofyear({named}) + 6) DIV 7)"

    return small(bound(day.sql, number), day)


def _unix_timestamp(values: Sequence[Value], context: Context) -> Value:
    if not values:
        return _unix_timestamp([now([], context)], context)
    value = values[0]
    if value.kind is not ValueKind.TIMESTAMP:
        value = instant(as_datetime(value, context), context.time_zone)
    if value.scale:
        digits = f"CAST(unix_micros({value.sql}) AS DECIMAL(19,0))"
        sql = f"CAST({digits} * CAST('0.000001' AS DECIMAL(6,6)) AS DECIMAL(20,{value.scale}))"
        found = Value(sql, ValueKind.DECIMAL, value.doubt, digits=20, scale=value.scale)
        zero = "CAST(0 AS DECIMAL(20,6))"
    else:
        found, zero = integer(f"unix_seconds({value.sql})", value, digits=12), "CAST(0 AS BIGINT)"
    # before 1970 the answer is 0; how far it goes after 2038 depends on the version
    sql = bound(found.sql, lambda x: f"CASE WHEN {x} < 0 THEN {zero} ELSE {x} END")
    if found.kind is ValueKind.DECIMAL:
        sql = f"CAST({sql} AS DECIMAL(20,{found.scale}))"
    return doubted(replace(found, sql=sql), f"{found.sql} > 2147483647")


def _from_unixtime(values: Sequence[Value], context: Context) -> Value:
    value = values[0]
    require(value, [ValueKind.INTEGER], "FROM_UNIXTIME")
    seconds = bound(value.sql, lambda x: f"CASE WHEN {x} BETWEEN 0 AND 2147483647 THEN CAST({x} AS BIGINT) END")
    sql = f"timestamp_seconds({seconds})"
    local = local_time(Value(sql, ValueKind.TIMESTAMP, value.doubt), context.time_zone)
    return doubted(local, f"{value.sql} > 2147483647")


def _date_format(values: Sequence[Value], context: Context) -> Value:
    found, pattern = as_datetime(values[0], context), constant_text(values[1], "DATE_FORMAT")
    parts = re.findall(r"%(.)|([^%]+)|(%)\Z", pattern, re.DOTALL)
    made: list[str] = []
    for specifier, plain, _ in parts:
        if plain:
            made.append("'" + plain.replace("'", "''") + "'")
        elif specifier not in _FORMATS:
            raise ExpressionError(f"DATE_FORMAT with %{specifier}")
        else:
            made.append("'%'" if specifier == "%" else _FORMATS[specifier])
    # parts stay apart: quotes side by side would be one, and letters side by side one longer number
    texts = [f"date_format({found.sql}, {quoted(part)})" for part in made]
    sql = f"concat({', '.join(texts)})" if texts else "''"
    return Value(sql, ValueKind.TEXT, found.doubt, charset="utf8mb4", collation=LITERAL)


def _time(values: Sequence[Value], context: Context) -> Value:
    if values[0].kind is ValueKind.TIME:
        return values[0]
    found = as_datetime(values[0], context)
    fraction = "." + "S" * found.scale if found.scale else ""
    sql = f"date_format({found.sql}, 'HH:mm:ss{fraction}')"
    return Value(sql, ValueKind.TIME, found.doubt, scale=found.scale)


def _last_day(values: Sequence[Value], context: Context) -> Value:
    day = as_date(values[0], context)
    return Value(f"last_day({day.sql})", ValueKind.DATE, day.doubt)


def part(unit: str, value: Value, context: Context) -> Value:
    """EXTRACT(unit FROM value)."""
    if unit == "YEAR_MONTH":
        day = as_date(value, context)
        return small(bound(day.sql, lambda x: f"(year({x}) * 100 + month({x}))"), day)
    if unit not in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MICROSECOND"):
        raise ExpressionError(f"EXTRACT of {unit}")
    return FUNCTIONS[unit][2]([value], context)


FUNCTIONS: dict[str, tuple[int, int, Function]] = {
    "YEAR": (1, 1, _of_day("year({})")),
    "QUARTER": (1, 1, _of_day("quarter({})")),
    "MONTH": (1, 1, _of_day("month({})")),
    "DAY": (1, 1, _of_day("day({})")),
    "DAYOFMONTH": (1, 1, _of_day("day({})")),
    "DAYOFWEEK": (1, 1, _of_day("dayofweek({})")),
    "DAYOFYEAR": (1, 1, _of_day("dayofyear({})")),
    "WEEKDAY": (1, 1, _of_day("weekday({})")),
    "WEEKOFYEAR": (1, 1, _of_day("weekofyear({})")),
    "WEEK": (1, 2, _week),
    "YEARWEEK": (1, 2, _year_week),
    "HOUR": (1, 1, _of_clock("hour", 2)),
    "MINUTE": (1, 1, _of_clock("minute", 3)),
    "SECOND": (1, 1, _of_clock("second", 4)),
    "MICROSECOND": (1, 1, _microsecond),
    "TO_DAYS": (1, 1, _to_days),
    "TO_SECONDS": (1, 1, _to_seconds),
    "TIME_TO_SEC": (1, 1, _time_to_sec),
    "DATEDIFF": (2, 2, _date_difference),
    "UNIX_TIMESTAMP": (0, 1, _unix_timestamp),
    "FROM_UNIXTIME": (1, 1, _from_unixtime),
    "DATE_FORMAT": (2, 2, _date_format),
    "DATE": (1, 1, lambda values, context: as_date(values[0], context)),
    "TIME": (1, 1, _time),
    "LAST_DAY": (1, 1, _last_day),
    "NOW": (0, 1, now),
    "CURRENT_TIMESTAMP": (0, 1, now),
    "LOCALTIME": (0, 1, now),
    "LOCALTIMESTAMP": (0, 1, now),
    "UTC_TIMESTAMP": (0, 1, utc_now),
    "CURDATE": (0, 0, today),
    "CURRENT_DATE": (0, 0, today),
}
"""By MySQL's name: the fewest and the most arguments, and what makes the value."""
