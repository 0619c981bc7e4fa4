"""Local times and instants: what MySQL does between DATETIME and TIMESTAMP. Spark's session is in UTC."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cdc_pipeline.mysql.expressions.values import ExpressionError, Value, ValueKind, doubted, quoted

_STEPS = (-3600, -1800, 1800, 3600)
"""By how many seconds a clock is set back or forward where it is."""


def checked_zone(name: str) -> str:
    """The name of a zone that is known; raises ExpressionError for others."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ExpressionError(f"no time zone: {name!r}") from error
    return name


def local_time(value: Value, time_zone: str) -> Value:
    """The DATETIME that a TIMESTAMP is in a zone."""
    sql = f"CAST(from_utc_timestamp({value.sql}, {quoted(time_zone)}) AS TIMESTAMP_NTZ)"
    return Value(sql, ValueKind.DATETIME, value.doubt, scale=value.scale)


def instant(value: Value, time_zone: str) -> Value:
    """The TIMESTAMP that a DATETIME is in a zone; doubtful where the clock shows that time twice or never."""
    local = f"CAST({value.sql} AS TIMESTAMP)"
    zone = quoted(time_zone)
    sql = f"to_utc_timestamp({local}, {zone})"
    found = Value(sql, ValueKind.TIMESTAMP, value.doubt, scale=value.scale)
    if _always_the_same(time_zone):
        return found

    def shows(step: int) -> str:
        return f"from_utc_timestamp(timestampadd(SECOND, {step}, {sql}), {zone}) = {local}"

    twice = " OR ".join(shows(step) for step in _STEPS)
    return doubted(found, f"(NOT {shows(0)} OR {twice})")


@cache
def _always_the_same(time_zone: str) -> bool:
    """Whether a zone's clock was never set in the years that TIMESTAMP has."""
    zone, start = ZoneInfo(time_zone), datetime(1969, 12, 1, tzinfo=timezone.utc)
    return len({(start + timedelta(days=7 * week)).astimezone(zone).utcoffset() for week in range(3700)}) == 1
