"""Dagster's daemon, the sensor and a broker, without manual steps: records are produced, and mirrors appear."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.lake.delta import committed_version
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.local_kafka import definitions
from cdc_pipeline_tests.local_kafka.broker import LocalBroker
from cdc_pipeline_tests.local_kafka.daemon import running_daemon
from cdc_pipeline_tests.local_kafka.definitions import BOOTSTRAP, LAKE
from cdc_pipeline_tests.local_kafka.feed import Record, capture_records, create_topics, partition_counts, produce
from cdc_pipeline_tests.support.lakes.runs import mirror_differences, records_until
from cdc_pipeline_tests.support.servers.browser import browser
from cdc_pipeline_tests.support.servers.webserver import webserver
from cdc_pipeline_tests.support.shop import CAPTURE
from cdc_pipeline_tests.support.spark_settings import SHORT_LIVED, write_defaults

pytestmark = pytest.mark.jvm

_ROOT = Path(__file__).parents[2]
_PICTURES = os.environ.get("CDC_PICTURES")
"""The folder of the docs' pictures, if they are taken."""
_PATIENCE_SECONDS = 900.0  # timeout; a slow machine shares two cores with the other tests
_FEW = 300  # enough for a watermark in each partition
# A part of the shop: `test_slices` and `test_kafka` use all of it.
_WATERMARKS = 3
_TABLES = ("customers", "products")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[LocalBroker]:
    """The broker. The daemon runs with its own home and lake until the test ends."""
    environment = {"CDC_DRIVER_MEMORY": "2g", **write_defaults(tmp_path / "spark", SHORT_LIVED)}
    with (
        LocalBroker(tmp_path / "kafka") as broker,
        running_daemon(tmp_path, broker.bootstrap, environment) as process,
    ):
        yield broker
        assert process.poll() is None, (tmp_path / "daemon.log").read_text()


@pytest.mark.core
def test_mirrors_arrive_by_themselves(daemon: LocalBroker, spark: SparkSession, tmp_path: Path) -> None:
    """Records that are produced after the first cut are ingested too."""
    with (CAPTURE / "expected_at_watermarks.jsonl").open(encoding="utf-8") as stream:
        truth_at_end = [json.loads(line) for line in stream][_WATERMARKS - 1]
    watermark = truth_at_end["watermark"]
    records = [replace(record, topic="shop-topic") for record in records_until(capture_records(CAPTURE), watermark)]
    create_topics(daemon.bootstrap, partition_counts(records))
    paths = LakePaths(str(tmp_path / "lake"), "live")
    _produce(daemon, records[:_FEW])
    first = _wait_for_cut(spark, paths, 0, tmp_path)
    _produce(daemon, records[_FEW:])
    assert first < watermark
    assert _wait_for_cut(spark, paths, watermark - 1, tmp_path) == watermark
    for table in _TABLES:
        name, truth = TableName("shop", table), truth_at_end["tables"][f"shop.{table}"]
        assert mirror_differences(spark, paths, name, truth["columns"], truth["rows"]) == []
    if _PICTURES:
        _show_topic(tmp_path, daemon, Path(_PICTURES))


def _show_topic(tmp_path: Path, broker: LocalBroker, pictures: Path) -> None:
    """The page of the topic, with the offsets and the lag that the runs observed."""
    environment = {BOOTSTRAP: broker.bootstrap, LAKE: str(tmp_path / "lake")}
    with (
        webserver(tmp_path / "dagster", "-m", definitions.__name__, **environment) as server,
        browser(tmp_path / "profile") as page,
    ):
        page.open(
            server.page("/assets/live/source/topic_pattern?view=events"),
            "Observed",
            "lag",
            "partitions",
            size=(1400, 600),
        )
        page.settle()
        page.picture(pictures / "topic.png")


def _produce(broker: LocalBroker, records: list[Record]) -> None:
    """Sends the watermarks among these records, and the messages of `_TABLES`."""
    kept = [record for record in records if json.loads(record.value or b"{}").get("table", "") in ("", *_TABLES)]
    for _ in produce(broker.bootstrap, kept):
        pass


def _wait_for_cut(spark: SparkSession, paths: LakePaths, above: int, tmp_path: Path) -> int:
    """Waits for a cut with a resolved TSO above `above`. Returns that TSO."""
    until, seen = time.monotonic() + _PATIENCE_SECONDS, 0
    while True:
        # a query takes CPU from the run, so only check the log until it has a new commit
        cut = committed_version(spark, paths.table("consistent_cuts"), paths.app_id("consistent_cuts")) or 0
        if cut > seen and (tso := published_cut(Lake(spark, paths)).resolved_tso or 0) > above:
            return tso
        seen = cut
        assert time.monotonic() < until, _what_happened(tmp_path)
        time.sleep(3)


def _what_happened(tmp_path: Path) -> str:
    """The daemon's log without its periodic lines: its errors and its end."""
    quiet = ("Checking for new runs", " skipped: ", "Yielded output", "ASSET_", "LOGS_CAPTURED", "RESOURCE_INIT")
    lines = (tmp_path / "daemon.log").read_text().splitlines()
    shown = [line[:500] for line in lines if not any(word in line for word in quiet)]
    return "\n".join(shown[-150:])
