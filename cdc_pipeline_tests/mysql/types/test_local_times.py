from __future__ import annotations

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.mysql.types.local_times import NEVER, TWICE, is_shown, odd_hours, times_shown

_ZONES = ["America/New_York", "Asia/Shanghai", "Europe/Dublin", "America/Sao_Paulo", "Asia/Amman", "Africa/Cairo"]


def _times_shown(local: datetime, zone: ZoneInfo) -> int:
    """Counts the instants around `local` that the zone shows as this local time."""
    instants = (local.replace(tzinfo=timezone.utc) + timedelta(minutes=30 * step) for step in range(-30, 31))
    return sum(instant.astimezone(zone).replace(tzinfo=None) == local for instant in instants)


@pytest.mark.parametrize("name", _ZONES)
def test_odd_hours_are_those_shown_twice_or_never(name: str) -> None:
    zone, hours = ZoneInfo(name), odd_hours(name)
    assert hours
    for hour, how in list(hours.items())[-8:]:
        start = datetime.strptime(hour, "%Y-%m-%d %H")
        for minutes in (0, 30):
            assert _times_shown(start + timedelta(minutes=minutes), zone) == (2 if how == TWICE else 0)
        assert _times_shown(start - timedelta(minutes=30), zone) == _times_shown(start + timedelta(hours=1), zone) == 1


@pytest.mark.usefixtures("spark")  # for F.lit
@pytest.mark.parametrize("name", ["UTC", "Etc/GMT-8", "+08:00", "no zone"])
def test_a_zone_without_changes_adds_no_expression(name: str) -> None:
    assert odd_hours(name) == {}
    assert is_shown(F.lit(""), name, TWICE) is None


_TEXTS = {
    "America/New_York": {
        "2024-11-03 00:59:59.999999": None,
        "2024-11-03 01:00:00": TWICE,
        "2024-11-03 01:59:59.9": TWICE,
        "2024-11-03 02:00:00": None,
        "2024-03-10 01:59:59": None,
        "2024-03-10 02:00:00": NEVER,
        "2024-03-10 03:00:00": None,
        "2024-11-03": None,
        "0000-00-00 00:00:00": None,
        "": None,
    },
    # its clock changes by half an hour: the whole hour counts
    "Australia/Lord_Howe": {
        "2024-04-07 00:59:59": None,
        "2024-04-07 01:29:59": TWICE,
        "2024-04-07 01:30:00": TWICE,
        "2024-04-07 01:59:59": TWICE,
        "2024-10-06 02:29:59": NEVER,
        "2024-10-06 02:30:00": NEVER,
        "2024-10-06 03:00:00": None,
    },
}


@pytest.mark.parametrize("name", _TEXTS)
def test_texts_of_odd_times(name: str, spark: SparkSession) -> None:
    frame = spark.createDataFrame([(text,) for text in [*_TEXTS[name], None]], "text string")
    twice, never = (is_shown(F.col("text"), name, how) for how in (TWICE, NEVER))
    assert twice is not None
    assert never is not None
    found = frame.select("text", F.when(twice, TWICE).when(never, NEVER), twice.isNull() | never.isNull()).collect()
    assert {row[0]: row[1] for row in found} == {**_TEXTS[name], None: None}
    assert not any(row[2] for row in found)


def test_doubts_about_defaults() -> None:
    assert times_shown("2024-11-03 01:30:00.000000", "America/New_York") == TWICE
    assert times_shown("2024-03-10 02:30:00", "America/New_York") == NEVER
    assert times_shown("2024-11-03 01:30:00", "UTC") is None
