"""Date and time functions of MySQL expressions. A zero date, which is NULL in a mirror, gives NULL."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from cdc_pipeline.mysql.expressions import values as v
from cdc_pipeline.mysql.expressions.moments import as_date, as_datetime, instant, local_time, now, today, utc_now
from cdc_pipeline.mysql.expressions.values import Context, ExpressionError, Value, ValueKind

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
"""DATE_FORMAT specifier → Spark pattern. Specifiers that depend on the locale or the week mode are not supported."""


Function = Callable[[Sequence[Value], "Context"], Value]


def _day_function(template: str) -> Function:
    def translate(values: Sequence[Value], context: Context) -> Value:
        day = as_date(values[0], context)
        return v.integer_from_int(template.format(day.sql), day)

    return translate


def _clock_function(function: str, group: int) -> Function:
    """HOUR, MINUTE and SECOND of a moment or of a TIME, whose hours may exceed 23."""

    def translate(values: Sequence[Value], context: Context) -> Value:
        value = values[0]
        if value.kind is ValueKind.TIME:
            return v.integer(f"try_cast({_time_part(value.sql, group)} AS BIGINT)", value, digits=3)
        local = as_datetime(value, context)
        return v.integer_from_int(f"{function}({local.sql})", local)

    return translate


def _time_part(text: str, group: int) -> str:
    return f"regexp_extract({text}, {v.sql_string(_TIME_PATTERN)}, {group})"


def _microsecond(values: Sequence[Value], context: Context) -> Value:
    if values[0].kind is ValueKind.TIME:
        digits = f"rpad({_time_part(values[0].sql, 5)}, 6, '0')"
        return v.integer(f"try_cast({digits} AS BIGINT)", values[0], digits=6)
    local = as_datetime(values[0], context)
    return v.integer_from_int(f"date_format({local.sql}, 'SSSSSS')", local)


def _to_days(values: Sequence[Value], context: Context) -> Value:
    day = as_date(values[0], context)
    return v.integer_from_int(_day_number(day.sql), day)


def _day_number(day: str) -> str:
    return f"(datediff({day}, DATE'0001-01-01') + {_FIRST_DAY})"


def _to_seconds(values: Sequence[Value], context: Context) -> Value:
    local = as_datetime(values[0], context)
    # unix_seconds rounds down, which drops the fraction
    sql = f"(unix_seconds(CAST({local.sql} AS TIMESTAMP)) + {_EPOCH_SECONDS})"
    return v.integer(sql, local, digits=12)


_EPOCH_SECONDS = 719_528 * 86_400
"""TO_SECONDS('1970-01-01')."""


def _time_to_sec(values: Sequence[Value], context: Context) -> Value:
    value = values[0]
    if value.kind is not ValueKind.TIME:
        local = as_datetime(value, context)
        sql = f"(hour({local.sql}) * 3600 + minute({local.sql}) * 60 + second({local.sql}))"
        return v.integer_from_int(sql, local)

    def signed(text: str) -> str:
        parts = [f"try_cast({_time_part(text, group)} AS BIGINT)" for group in (2, 3, 4)]
        return f"(({parts[0]} * 3600 + {parts[1]} * 60 + {parts[2]}) * CASE WHEN {text} LIKE '-%' THEN -1 ELSE 1 END)"

    return v.integer(v.bind_sql(value.sql, signed), value, digits=7)


def _datediff(values: Sequence[Value], context: Context) -> Value:
    days = [as_date(value, context) for value in values]
    return v.integer_from_int(f"datediff({days[0].sql}, {days[1].sql})", *days)


def _week_start(day: str, mode: int) -> str:
    """SQL of the day that decides to which year the week of `day` belongs; weeks begin on Monday in odd modes."""
    since = f"weekday({day})" if mode % 2 else f"(dayofweek({day}) - 1)"
    # in modes 1, 3, 4 and 6 a week belongs to the year of its fourth day, in the others to the year of its first
    return f"date_add({day}, {3 if mode in (1, 3, 4, 6) else 0} - {since})"


def _week_mode(values: Sequence[Value], where: str) -> int:
    mode = v.constant_integer(values[1], where) if len(values) > 1 else 0
    if not 0 <= mode <= 7:
        raise ExpressionError(f"{where} in mode {mode}: expected 0 to 7")
    return mode


def _week(values: Sequence[Value], context: Context) -> Value:
    """WEEK(date[, mode]). The default mode is 0, the default of `default_week_format`."""
    day, mode = as_date(values[0], context), _week_mode(values, "WEEK")
    if mode in (2, 3, 6, 7):
        return v.integer_from_int(
            v.bind_sql(day.sql, lambda x: f"((dayofyear({_week_start(x, mode)}) + 6) DIV 7)"), day
        )
    # week 0 has the days before the first week
    sql = v.bind_sql(day.sql, lambda x: f"((datediff({_week_start(x, mode)}, trunc({x}, 'YEAR')) + 7) DIV 7)")
    return v.integer_from_int(sql, day)


def _year_week(values: Sequence[Value], context: Context) -> Value:
    day, mode = as_date(values[0], context), _week_mode(values, "YEARWEEK")

    def number(text: str) -> str:
        named = _week_start(text, mode)
        return f"(year({named}) * 100 + (dayofyear({named}) + 6) DIV 7)"

    return v.integer_from_int(v.bind_sql(day.sql, number), day)


def _unix_timestamp(values: Sequence[Value], context: Context) -> Value:
    if not values:
        return _unix_timestamp([now([], context)], context)
    value = values[0]
    if value.kind is not ValueKind.TIMESTAMP:
        value = instant(as_datetime(value, context), context.time_zone)
    if value.scale:
        digits = f"CAST(unix_micros({value.sql}) AS DECIMAL(19,0))"
        sql = f"CAST({digits} * CAST('0.000001' AS DECIMAL(6,6)) AS DECIMAL(20,{value.scale}))"
        seconds = Value(sql, ValueKind.DECIMAL, value.doubt, digits=20, scale=value.scale)
        zero = "CAST(0 AS DECIMAL(20,6))"
    else:
        seconds, zero = v.integer(f"unix_seconds({value.sql})", value, digits=12), "CAST(0 AS BIGINT)"
    # times before 1970 give 0; the maximum, after 2038, depends on the server version
    sql = v.bind_sql(seconds.sql, lambda x: f"CASE WHEN {x} < 0 THEN {zero} ELSE {x} END")
    if seconds.kind is ValueKind.DECIMAL:
        sql = f"CAST({sql} AS DECIMAL(20,{seconds.scale}))"
    return v.add_doubts(replace(seconds, sql=sql), f"{seconds.sql} > 2147483647")


def _from_unixtime(values: Sequence[Value], context: Context) -> Value:
    value = values[0]
    v.require_kind(value, [ValueKind.INTEGER], "FROM_UNIXTIME")
    seconds = v.bind_sql(value.sql, lambda x: f"CASE WHEN {x} BETWEEN 0 AND 2147483647 THEN CAST({x} AS BIGINT) END")
    sql = f"timestamp_seconds({seconds})"
    local = local_time(Value(sql, ValueKind.TIMESTAMP, value.doubt), context.time_zone)
    return v.add_doubts(local, f"{value.sql} > 2147483647")


def _date_format(values: Sequence[Value], context: Context) -> Value:
    local, pattern = as_datetime(values[0], context), v.constant_text(values[1], "DATE_FORMAT")
    parts = re.findall(r"%(.)|([^%]+)|(%)\Z", pattern, re.DOTALL)
    patterns: list[str] = []
    for specifier, plain, _ in parts:
        if plain:
            patterns.append("'" + plain.replace("'", "''") + "'")
        elif specifier not in _FORMATS:
            raise ExpressionError(f"DATE_FORMAT: the specifier %{specifier} is not supported")
        else:
            patterns.append("'%'" if specifier == "%" else _FORMATS[specifier])
    # one call per part: adjacent quotes would merge into one, and adjacent letters into a longer field
    texts = [f"date_format({local.sql}, {v.sql_string(part)})" for part in patterns]
    sql = f"concat({', '.join(texts)})" if texts else "''"
    return Value(sql, ValueKind.TEXT, local.doubt, charset="utf8mb4", collation=v.LITERAL)


def _time(values: Sequence[Value], context: Context) -> Value:
    if values[0].kind is ValueKind.TIME:
        return values[0]
    local = as_datetime(values[0], context)
    fraction = "." + "S" * local.scale if local.scale else ""
    sql = f"date_format({local.sql}, 'HH:mm:ss{fraction}')"
    return Value(sql, ValueKind.TIME, local.doubt, scale=local.scale)


def _last_day(values: Sequence[Value], context: Context) -> Value:
    day = as_date(values[0], context)
    return Value(f"last_day({day.sql})", ValueKind.DATE, day.doubt)


def extract(unit: str, value: Value, context: Context) -> Value:
    """EXTRACT(unit FROM value)."""
    if unit == "YEAR_MONTH":
        day = as_date(value, context)
        return v.integer_from_int(v.bind_sql(day.sql, lambda x: f"(year({x}) * 100 + month({x}))"), day)
    if unit not in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MICROSECOND"):
        raise ExpressionError(f"EXTRACT of {unit} is not supported")
    return FUNCTIONS[unit][2]([value], context)


FUNCTIONS: dict[str, tuple[int, int, Function]] = {
    "YEAR": (1, 1, _day_function("year({})")),
    "QUARTER": (1, 1, _day_function("quarter({})")),
    "MONTH": (1, 1, _day_function("month({})")),
    "DAY": (1, 1, _day_function("day({})")),
    "DAYOFMONTH": (1, 1, _day_function("day({})")),
    "DAYOFWEEK": (1, 1, _day_function("dayofweek({})")),
    "DAYOFYEAR": (1, 1, _day_function("dayofyear({})")),
    "WEEKDAY": (1, 1, _day_function("weekday({})")),
    "WEEKOFYEAR": (1, 1, _day_function("weekofyear({})")),
    "WEEK": (1, 2, _week),
    "YEARWEEK": (1, 2, _year_week),
    "HOUR": (1, 1, _clock_function("hour", 2)),
    "MINUTE": (1, 1, _clock_function("minute", 3)),
    "SECOND": (1, 1, _clock_function("second", 4)),
    "MICROSECOND": (1, 1, _microsecond),
    "TO_DAYS": (1, 1, _to_days),
    "TO_SECONDS": (1, 1, _to_seconds),
    "TIME_TO_SEC": (1, 1, _time_to_sec),
    "DATEDIFF": (2, 2, _datediff),
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
"""MySQL name → minimum and maximum number of arguments, and the translation."""
