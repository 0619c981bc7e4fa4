"""The content of the UI tests: a small lake, and a Dagster instance with the runs that created it."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import dagster as dg

from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.run_fields import FollowSettings
from cdc_pipeline.component.source_field import CaptureFilesSource
from cdc_pipeline.definitions import defs
from cdc_pipeline_tests.local_kafka.feed import Record, capture_records
from cdc_pipeline_tests.support.lakes.runs import environment
from cdc_pipeline_tests.support.messages import record_line
from cdc_pipeline_tests.support.servers.webserver import ROOT

CAPTURE = ROOT / "data" / "captures" / "shop"
TABLES = ("customers", "products")
NO_NUMBER = "twenty-five"
"""The `price` in one row of `shop.products`: causes a dead letter and a gap of the mirror."""
_PARTITIONS = 4
_PATIENCE_SECONDS = 300.0


def shown_lake(folder: Path, batches: int = 2) -> tuple[Path, Path]:
    """Ingests two tables of the shop in this many batches, each up to a watermark. Returns (lake, DAGSTER_HOME).

    Two batches are two runs of `shop_ingest`; more are batches of one run of `shop_follow`. A row in the middle breaks a
    rule.
    """
    captures, lake, home = folder / "captures", folder / "lake", folder / "dagster"
    captures.mkdir(parents=True)
    home.mkdir()
    shutil.copy(ROOT / "dagster.yaml", home)
    parts = _parts(batches)
    middle = batches // 2
    bad = next(record for record in parts[middle] if _table(record) == "products")
    parts[middle] = [_broken(record) if record is bad else record for record in parts[middle]]
    with environment(captures, lake), dg.DagsterInstance.from_config(str(home)) as instance:
        if batches > 2:
            _follow(captures, lake, instance, parts)
            return lake, home
        for number, part in enumerate(parts):
            _write(captures, number, part)
            ingest = defs().resolve_job_def("shop_ingest")
            assert ingest.execute_in_process(instance=instance).success
    return lake, home


def _parts(count: int) -> list[list[Record]]:
    """The first records of the two tables, up to as many watermarks."""
    records = [record for record in capture_records(CAPTURE) if _table(record) in ("", *TABLES)]
    ends = [number for number, record in enumerate(records) if b"watermarkTs" in (record.value or b"")]
    # up to the watermark of the last partition
    bounds = [0, *(end + 1 for end in ends[_PARTITIONS - 1 :: _PARTITIONS])]
    return [records[start:end] for start, end in pairwise(bounds[: count + 1])]


def _follow(captures: Path, lake: Path, instance: dg.DagsterInstance, parts: list[list[Record]]) -> None:
    """A following run that finds a new file after each cut, then verification."""
    component = CdcPipeline(
        name="shop",
        source=CaptureFilesSource(type="capture_files", path=str(captures)),
        lake=str(lake),
        follow=FollowSettings(idle_minutes=0.5),
    )
    log = lake / "shop" / "consistent_cuts" / "_delta_log"

    def write() -> None:
        for number, part in enumerate(parts):
            until = time.monotonic() + _PATIENCE_SECONDS
            while number and not (log / f"{number - 1:020}.json").exists() and time.monotonic() < until:
                time.sleep(0.1)
            _write(captures, number, part)

    writer = threading.Thread(target=write)
    writer.start()
    for job in ("shop_follow", "shop_verify"):
        assert component.build_defs().resolve_job_def(job).execute_in_process(instance=instance).success
    writer.join()


def _write(captures: Path, number: int, records: Iterable[Record]) -> None:
    lines = [
        record_line((record.value or b"").decode(), record.topic, record.partition, record.offset) for record in records
    ]
    written = captures.parent / f"{number:03}.part"
    written.write_text("\n".join(lines) + "\n", encoding="utf-8")
    written.rename(captures / f"{number:03}.jsonl")


def _table(record: Record) -> str:
    return str(json.loads(record.value or b"{}").get("table", ""))


def _broken(record: Record) -> Record:
    message = json.loads(record.value or b"{}")
    message["data"][0]["price"] = NO_NUMBER
    return replace(record, value=json.dumps(message).encode())
