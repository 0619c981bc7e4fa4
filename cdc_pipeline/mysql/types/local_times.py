"""Local times that a zone's clock shows twice, or never: where a TIMESTAMP's text does not tell its instant.

TiCDC prints TIMESTAMP in the zone of its server, Canal in that of its JVM, neither with an offset. An hour that a clock
is set back by is shown twice; one that it is set forward by never, so that no encoder of that zone can have printed it:
a text in it tells that `time_zone` is not the encoder's.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark.sql import functions as F

from cdc_pipeline.gaps import Gap, GapKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column

    from cdc_pipeline.mysql.model.table import MySqlType

TWICE, NEVER = "twice", "never"
_EPOCH = datetime(1970, 1, 1)
_FIRST, _LAST = datetime(1969, 12, 31), datetime(2038, 1, 20)
"""TIMESTAMP has the years 1970 to 2038; what lies beyond is not there to be read."""
_HOUR = "%Y-%m-%d %H"


class Odd(NamedTuple):
    """Local times from `start` up to `end`, which the clock shows `how`: twice or never."""

    start: datetime
    end: datetime
    how: str


@lru_cache(maxsize=32)
def odd_times(time_zone: str) -> tuple[Odd, ...]:
    """The local times of a zone that are shown twice or never, in order; none where its clock was never set, as that of a
    mere offset."""
    try:
        zone = ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError):
        return ()
    found = []
    day = _FIRST.replace(tzinfo=timezone.utc)
    while day.replace(tzinfo=None) < _LAST:
        following = day + timedelta(days=1)
        if _offset(day, zone) != _offset(following, zone):
            found.append(_odd(day, following, zone))
        day = following
    return tuple(item for item in found if item.start < item.end)


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def _odd(low: datetime, high: datetime, zone: ZoneInfo) -> Odd:
    """The clock is set once between the two instants."""
    before, after = _offset(low, zone), _offset(high, zone)
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) / 2
        middle = middle.replace(microsecond=0)
        low, high = (middle, high) if _offset(middle, zone) == before else (low, middle)
    moment = high.replace(tzinfo=None)
    return (
        Odd(moment + after, moment + before, TWICE) if after < before else Odd(moment + before, moment + after, NEVER)
    )


def local_time_doubt(text: str, time_zone: str) -> str | None:
    """How often the clock of the zone shows a local time (`YYYY-MM-DD hh:mm:ss…`), where it is not once."""
    local = datetime.fromisoformat(text[:19])
    return next((odd.how for odd in odd_times(time_zone) if odd.start <= local < odd.end), None)


def shown(text: Column, time_zone: str, how: str) -> Column | None:
    """Whether the text of a local time is one that the zone's clock shows so often; None where there is none such.

    The hour is looked up first, in one text with all such hours, so that other rows cost no more than that.
    """
    odd = [item for item in odd_times(time_zone) if item.how == how]
    if not odd:
        return None
    hours = {_hour: None for item in odd for _hour in _hours(item)}
    in_hour = F.contains(F.lit("|".join(hours)), F.substring(text, 1, 13)) & (F.length(text) >= 19)
    if all(item.start.minute == item.end.minute == 0 for item in odd):
        return F.coalesce(in_hour, F.lit(False))
    # a clock that is set by half an hour, or in the middle of one
    seconds = F.unix_seconds(F.substring(text, 1, 19).try_cast("timestamp_ntz").cast("timestamp"))
    within = F.lit(False)
    for item in odd:
        start, end = (int((moment - _EPOCH).total_seconds()) for moment in (item.start, item.end))
        within = within | ((seconds >= start) & (seconds < end))
    return F.coalesce(in_hour & within, F.lit(False))


def odd_columns(texts: Iterable[tuple[str, Column, MySqlType]], time_zone: str) -> Column | None:
    """Of a row, the TIMESTAMP columns whose texts do not tell their instants: an array of `<twice or never>:<column>`. The
    texts are given with their columns' names and types. None where no row can have any: that costs nothing."""
    stamps = [(name, text) for name, text, kind in texts if kind.base == "timestamp"]
    found = [
        F.when(odd, F.lit(f"{how}:{name}"))
        for name, text in stamps
        for how in (TWICE, NEVER)
        if (odd := shown(text, time_zone, how)) is not None
    ]
    return F.array_compact(F.array(*found)) if found else None


def odd_gaps(found: Iterable[str]) -> list[Gap]:
    """What a mirror says of the columns that `odd_columns` has named."""
    gaps = []
    for how, _, name in (item.partition(":") for item in sorted(found)):
        if how == TWICE:
            words = (
                "some texts are a local time that time_zone's clock shows twice: which of the two instants is not told"
            )
            gaps.append(Gap(GapKind.AMBIGUOUS_TIME, words, name))
        else:
            words = "some texts are a local time that time_zone's clock leaves out: time_zone is not the encoder's"
            gaps.append(Gap(GapKind.NONEXISTENT_TIME, words, name))
    return gaps


def _hours(item: Odd) -> list[str]:
    hour = item.start.replace(minute=0, second=0)
    found = []
    while hour < item.end:
        found.append(hour.strftime(_HOUR))
        hour += timedelta(hours=1)
    return found
