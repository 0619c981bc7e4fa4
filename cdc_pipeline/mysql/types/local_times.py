"""Local times that the clock of a zone shows twice or never, so the text of a TIMESTAMP does not determine its instant.

TiCDC prints TIMESTAMP in the zone of its server, Canal in the zone of its JVM, both without an offset. When a clock is set
back, it shows the same local times twice. When it is set forward, it skips local times. No encoder of that zone can print
a skipped time, so such a text proves that `time_zone` is not the zone of the encoder.
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
"""A TIMESTAMP is in the years 1970 to 2038."""
_HOUR = "%Y-%m-%d %H"


class ClockChange(NamedTuple):
    """A range of local times that the clock of a zone shows twice or never."""

    start: datetime
    end: datetime
    """Exclusive."""
    how: str
    """TWICE or NEVER."""


@lru_cache(maxsize=32)
def clock_changes(time_zone: str) -> tuple[ClockChange, ...]:
    """The ranges of local times that the clock of a zone shows twice or never, in order.

    Empty for a zone with a constant offset and for an unknown zone.
    """
    try:
        zone = ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError):
        return ()
    changes = []
    day = _FIRST.replace(tzinfo=timezone.utc)
    while day.replace(tzinfo=None) < _LAST:
        following = day + timedelta(days=1)
        if _offset(day, zone) != _offset(following, zone):
            changes.append(_clock_change(day, following, zone))
        day = following
    return tuple(change for change in changes if change.start < change.end)


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def _clock_change(low: datetime, high: datetime, zone: ZoneInfo) -> ClockChange:
    """The only clock change between two instants, found by bisection to the second."""
    before, after = _offset(low, zone), _offset(high, zone)
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) / 2
        middle = middle.replace(microsecond=0)
        low, high = (middle, high) if _offset(middle, zone) == before else (low, middle)
    moment = high.replace(tzinfo=None)
    if after < before:
        return ClockChange(moment + after, moment + before, TWICE)
    return ClockChange(moment + before, moment + after, NEVER)


def times_shown(text: str, time_zone: str) -> str | None:
    """TWICE or NEVER if the clock of the zone shows the local time (`YYYY-MM-DD hh:mm:ss…`) so often; None for once."""
    local = datetime.fromisoformat(text[:19])
    return next((change.how for change in clock_changes(time_zone) if change.start <= local < change.end), None)


def is_shown(text: Column, time_zone: str, how: str) -> Column | None:
    """A boolean column: whether the clock of the zone shows the local time `text` as often as `how` (TWICE or NEVER).

    None if the zone has no such times. The hour is first searched in one literal with all affected hours, so other rows
    cost little.
    """
    changes = [change for change in clock_changes(time_zone) if change.how == how]
    if not changes:
        return None
    hours = {hour: None for change in changes for hour in _hours(change)}
    in_hour = F.contains(F.lit("|".join(hours)), F.substring(text, 1, 13)) & (F.length(text) >= 19)
    if all(change.start.minute == change.end.minute == 0 for change in changes):
        return F.coalesce(in_hour, F.lit(False))
    # the clock change begins or ends within an hour
    seconds = F.unix_seconds(F.substring(text, 1, 19).try_cast("timestamp_ntz").cast("timestamp"))
    within = F.lit(False)
    for change in changes:
        start, end = (int((moment - _EPOCH).total_seconds()) for moment in (change.start, change.end))
        within = within | ((seconds >= start) & (seconds < end))
    return F.coalesce(in_hour & within, F.lit(False))


def ambiguous_columns(texts: Iterable[tuple[str, Column, MySqlType]], time_zone: str) -> Column | None:
    """An array column: `twice:<column>` or `never:<column>` per TIMESTAMP column whose text does not determine its instant.

    `texts`: (name, text, type) per column. None if no row can have such a text.
    """
    stamps = [(name, text) for name, text, kind in texts if kind.base == "timestamp"]
    entries = [
        F.when(condition, F.lit(f"{how}:{name}"))
        for name, text in stamps
        for how in (TWICE, NEVER)
        if (condition := is_shown(text, time_zone, how)) is not None
    ]
    return F.array_compact(F.array(*entries)) if entries else None


def local_time_gaps(found: Iterable[str]) -> list[Gap]:
    """The gaps of a mirror for the entries that `ambiguous_columns` returned."""
    gaps = []
    for how, _, name in (item.partition(":") for item in sorted(found)):
        if how == TWICE:
            detail = "some values are local times that the clock of time_zone shows twice: their instants are ambiguous"
            gaps.append(Gap(GapKind.AMBIGUOUS_TIME, detail, name))
        else:
            detail = (
                "some values are local times that the clock of time_zone skips: time_zone is not the encoder's zone"
            )
            gaps.append(Gap(GapKind.NONEXISTENT_TIME, detail, name))
    return gaps


def _hours(change: ClockChange) -> list[str]:
    hour = change.start.replace(minute=0, second=0)
    hours = []
    while hour < change.end:
        hours.append(hour.strftime(_HOUR))
        hour += timedelta(hours=1)
    return hours
