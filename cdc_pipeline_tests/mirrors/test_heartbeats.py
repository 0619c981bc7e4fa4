"""Heartbeats of DataWorks: how far streams are that have no watermarks, from cut to cut."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

from pyspark.sql import SparkSession

from cdc_pipeline.checks.streams import lag
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.messages import EPOCH_MS, Topic, dataworks

_HOUR = 3600
_ID = {"id": "LONG"}


def _at(second: int) -> datetime:
    return datetime.fromtimestamp(EPOCH_MS / 1000, timezone.utc) + timedelta(seconds=second)


def _heartbeat(second: int) -> str:
    return dataworks("MHEARTBEAT", None, second)


def test_the_lag_of_a_stream_without_watermarks(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    orders, items = Topic("orders"), Topic("items")
    orders.send(dataworks("INSERT", "o", 1, after={"id": 1}, types=_ID, key=["id"], sequence="1"))
    orders.send(_heartbeat(60)).send(_heartbeat(30))
    items.send(_heartbeat(20))
    # from the future: whoever believes it takes the topic to be up to date for ever
    items.send(_heartbeat(40 + 2 * _HOUR), sent=EPOCH_MS + 40_000)
    orders.write(folder, "1-orders.jsonl")
    items.write(folder, "1-items.jsonl")
    report = ingest(spark, paths, folder)
    assert report.streams.heartbeats == {"orders": EPOCH_MS + 60_000, "items": EPOCH_MS + 20_000}
    assert lag(report, _at(80)) == timedelta(seconds=60)

    # nothing but heartbeats; then nothing at all, so that no cut is made
    items.send(_heartbeat(600), sent=EPOCH_MS + 601_000).write(folder, "2-items.jsonl")
    assert lag(ingest(spark, paths, folder, run_id="2"), _at(620)) == timedelta(seconds=560)
    report = ingest(spark, paths, folder, run_id="3")
    assert (report.published, lag(report, _at(3600))) == (False, timedelta(seconds=3540))
    assert report.streams.blocking_reason() == "no heartbeat has arrived in orders since"
