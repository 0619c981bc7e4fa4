"""Date and time functions of MySQL expressions. A zero date, which is NULL in a mirror, gives NULL."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from cdc_pipeline.mysql.expressions import values as v
from cdc_pipeline.mysql.expressions.moments import as_date, as_datetime, instant, local_time, now
from cdc_pipeline.mysql.expressions.texts import time_micros_sql
from cdc_pipeline.mysql.expressions.values import Context, ExpressionError, Function, Value, ValueKind

_FIRST_DAY = 366
"""TO_DAYS('0001-01-01')."""
_EPOCH_SECONDS = 719_528 * 86_400
"""TO_SECONDS('1970-01-01')."""
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


def _of_dates(template: str, result: Callable[..., Value] = v.integer_from_int) -> Function:
    """A value computed from the dates of all arguments; by default an integer."""

    def translate(values: Sequence[Value], context: Context) -> Value:
        days = [as_date(value, context) for value in values]
        return result(template.format(*(day.sql for day in days)), *days)

    return translate


def _of_clock(template: str) -> Function:
    """An integer computed from the microseconds since midnight, or of a TIME, whose hours may exceed 23."""

    def translate(values: Sequence[Value], context: Context) -> Value:
        value = values[0]
        if value.kind is ValueKind.TIME:
            micros = time_micros_sql(value.sql)
        else:
            value = as_datetime(value, context)
            micros = f"pmod(unix_micros(CAST({value.sql} AS TIMESTAMP)), 86400000000L)"
        return v.integer(template.format(micros), value, digits=7)

    return translate


def _to_seconds(values: Sequence[Value], context: Context) -> Value:
    local = as_datetime(values[0], context)
    # unix_seconds rounds down, which drops the fraction
    sql = f"(unix_seconds(CAST({local.sql} AS TIMESTAMP)) + {_EPOCH_SECONDS})"
    return v.integer(sql, local, digits=12)


def _year_week(values: Sequence[Value], context: Context) -> Value:
    """YEARWEEK(date[, mode]); weeks begin on Monday in odd modes, on Sunday in the others."""
    day, mode = as_date(values[0], context), v.constant_integer(values[1], "YEARWEEK") if len(values) > 1 else 0
    if not 0 <= mode <= 7:
        raise ExpressionError(f"YEARWEEK in mode {mode}: expected 0 to 7")

    def number(text: str) -> str:
        since = f"weekday({text})" if mode % 2 else f"(dayofweek({text}) - 1)"
        # in modes 1, 3, 4 and 6 a week belongs to the year of its fourth day, in the others to the year of its first
        named = f"date_add({text}, {3 if mode in (1, 3, 4, 6) else 0} - {since})"
        return f"(year({named}) * 100 + (dayofyear({named}) + 6) DIV 7)"

    return v.integer_from_int(v.bind_sql(day.sql, number), day)


def _unix_timestamp(values: Sequence[Value], context: Context) -> Value:
    value = values[0] if values else now([], context)
    if value.kind is not ValueKind.TIMESTAMP:
        value = instant(as_datetime(value, context), context.time_zone)
    if value.scale:
        raise ExpressionError("UNIX_TIMESTAMP of a time with fractions of a second is not supported")
    seconds = f"unix_seconds({value.sql})"
    # times before 1970 give 0; the maximum, after 2038, depends on the server version
    sql = v.bind_sql(seconds, lambda x: f"CASE WHEN {x} < 0 THEN 0L ELSE {x} END")
    return v.add_doubts(v.integer(sql, value, digits=12), f"{seconds} > 2147483647")


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


def extract(unit: str, value: Value, context: Context) -> Value:
    """EXTRACT(unit FROM value)."""
    if unit == "YEAR_MONTH":
        return _of_dates("date_format({}, 'yyyyMM')")([value], context)
    if unit not in ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "MICROSECOND"):
        raise ExpressionError(f"EXTRACT of {unit} is not supported")
    return FUNCTIONS[unit][2]([value], context)


FUNCTIONS: dict[str, tuple[int, int, Function]] = {
    "YEAR": (1, 1, _of_dates("year({})")),
    "QUARTER": (1, 1, _of_dates("quarter({})")),
    "MONTH": (1, 1, _of_dates("month({})")),
    **dict.fromkeys(("DAY", "DAYOFMONTH"), (1, 1, _of_dates("day({})"))),
    "DAYOFWEEK": (1, 1, _of_dates("dayofweek({})")),
    "DAYOFYEAR": (1, 1, _of_dates("dayofyear({})")),
    "WEEKDAY": (1, 1, _of_dates("weekday({})")),
    "WEEKOFYEAR": (1, 1, _of_dates("weekofyear({})")),
    "YEARWEEK": (1, 2, _year_week),
    "TO_DAYS": (1, 1, _of_dates(f"(datediff({{}}, DATE'0001-01-01') + {_FIRST_DAY})")),
    "DATEDIFF": (2, 2, _of_dates("datediff({}, {})")),
    "DATE": (1, 1, lambda values, context: as_date(values[0], context)),
    "LAST_DAY": (1, 1, _of_dates("last_day({})", lambda sql, day: v.value_from(sql, ValueKind.DATE, day))),
    "HOUR": (1, 1, _of_clock("(abs({}) DIV 3600000000)")),
    "MINUTE": (1, 1, _of_clock("(abs({}) DIV 60000000 % 60)")),
    "SECOND": (1, 1, _of_clock("(abs({}) DIV 1000000 % 60)")),
    "MICROSECOND": (1, 1, _of_clock("(abs({}) % 1000000)")),
    "TIME_TO_SEC": (1, 1, _of_clock("({} DIV 1000000)")),
    "TO_SECONDS": (1, 1, _to_seconds),
    "TIME": (1, 1, _time),
    "UNIX_TIMESTAMP": (0, 1, _unix_timestamp),
    "FROM_UNIXTIME": (1, 1, _from_unixtime),
    "DATE_FORMAT": (2, 2, _date_format),
    **dict.fromkeys(("NOW", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP"), (0, 1, now)),
    "UTC_TIMESTAMP": (0, 1, lambda values, context: local_time(now(values, context), "UTC")),
    **dict.fromkeys(("CURDATE", "CURRENT_DATE"), (0, 0, lambda _, context: as_date(now([], context), context))),
}
"""MySQL name → minimum and maximum number of arguments, and the translation."""
