"""Conversions between DATETIME (local time) and TIMESTAMP (instant) in a time zone. The Spark session is in UTC."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cdc_pipeline.mysql.expressions.values import ExpressionError, Value, ValueKind, add_doubts, sql_string

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
    sql = f"CAST(from_utc_timestamp({value.sql}, {sql_string(time_zone)}) AS TIMESTAMP_NTZ)"
    return Value(sql, ValueKind.DATETIME, value.doubt, scale=value.scale)


def instant(value: Value, time_zone: str) -> Value:
    """A DATETIME of a zone as TIMESTAMP; doubtful if the clock of the zone shows this time twice or never."""
    local = f"CAST({value.sql} AS TIMESTAMP)"
    zone = sql_string(time_zone)
    sql = f"to_utc_timestamp({local}, {zone})"
    result = Value(sql, ValueKind.TIMESTAMP, value.doubt, scale=value.scale)
    if _has_fixed_offset(time_zone):
        return result

    def shows(step: int) -> str:
        return f"from_utc_timestamp(timestampadd(SECOND, {step}, {sql}), {zone}) = {local}"

    twice = " OR ".join(shows(step) for step in _STEPS)
    return add_doubts(result, f"(NOT {shows(0)} OR {twice})")


@cache
def _has_fixed_offset(time_zone: str) -> bool:
    """Whether the UTC offset of the zone is constant from 1970 to 2040, the years of TIMESTAMP."""
    zone, start = ZoneInfo(time_zone), datetime(1969, 12, 1, tzinfo=timezone.utc)
    return len({(start + timedelta(days=7 * week)).astimezone(zone).utcoffset() for week in range(3700)}) == 1
