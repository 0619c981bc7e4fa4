"""Local times that the clock of a zone shows twice or never, so the text of a TIMESTAMP does not determine its instant.

TiCDC prints TIMESTAMP in the zone of its server, Canal in the zone of its JVM, both without an offset. When a clock is set
back, it shows the same local times twice. When it is set forward, it skips local times. No encoder of that zone can print
a skipped time, so such a text proves that `time_zone` is not the zone of the encoder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mysql.model.table import MySqlType

TWICE, NEVER = "twice", "never"
_FIRST, _LAST = datetime(1969, 12, 31), datetime(2038, 1, 20)
"""A TIMESTAMP is in the years 1970 to 2038."""
_GAPS = {
    TWICE: (
        GapKind.AMBIGUOUS_TIME,
        "some values are local times that the clock of time_zone shows twice: their instants are ambiguous",
    ),
    NEVER: (
        GapKind.NONEXISTENT_TIME,
        "some values are local times that the clock of time_zone skips: time_zone is not the encoder's zone",
    ),
}


@lru_cache(maxsize=32)
def odd_hours(time_zone: str) -> Mapping[str, str]:
    """The local hours (`YYYY-MM-DD hh`) that the clock of a zone shows twice or never, in whole or in part → TWICE or NEVER.

    Empty for a zone with a constant offset and for an unknown zone.
    """
    try:
        zone = ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError):
        return {}
    hours = {}
    day = _FIRST
    while day < _LAST:
        following = day + timedelta(days=1)
        if _offsets(day, zone)[0] != _offsets(following, zone)[0]:
            for half_hour in range(-6, 48):  # set back after midnight, the clock shows hours of the day before again
                moment = day + timedelta(minutes=30 * half_hour)
                first, second = _offsets(moment, zone)
                if first != second:
                    # set back, the clock shows the time first with the greater offset
                    hours[f"{moment:%Y-%m-%d %H}"] = TWICE if first > second else NEVER
        day = following
    return hours


def _offsets(local: datetime, zone: ZoneInfo) -> tuple[timedelta, timedelta]:
    """The UTC offsets of the first and the second instant of a local time; around a skipped one, those before and after."""
    first, second = (local.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
    assert first is not None
    assert second is not None
    return first, second


def times_shown(text: str, time_zone: str) -> str | None:
    """TWICE or NEVER if the clock of the zone shows the local time (`YYYY-MM-DD hh:mm:ss…`) so often; None for once."""
    return odd_hours(time_zone).get(text[:13])


def is_shown(text: Column, time_zone: str, how: str) -> Column | None:
    """A boolean column: whether the clock of the zone shows the local time `text` as often as `how` (TWICE or NEVER).

    None if the zone has no such times. One literal has all hours, so that a row costs little.
    """
    hours = [hour for hour, found in odd_hours(time_zone).items() if found == how]
    if not hours:
        return None
    in_hour = F.contains(F.lit("|".join(hours)), F.substring(text, 1, 13)) & (F.length(text) >= 19)
    return F.coalesce(in_hour, F.lit(False))


def ambiguous_time(text: Column, kind: MySqlType, time_zone: str) -> Column | None:
    """TWICE or NEVER if the text of a TIMESTAMP does not determine its instant, else NULL. None: no text is such a one."""
    found = [
        F.when(condition, F.lit(how))
        for how in (TWICE, NEVER)
        if kind.base == "timestamp" and (condition := is_shown(text, time_zone, how)) is not None
    ]
    return F.coalesce(*found) if found else None


def local_time_gaps(found: Iterable[str]) -> list[Gap]:
    """The gaps of a mirror: `found` are texts of `ambiguous_time`, a colon, and the column."""
    return [Gap(*_GAPS[how], name) for how, _, name in (item.partition(":") for item in sorted(found))]
