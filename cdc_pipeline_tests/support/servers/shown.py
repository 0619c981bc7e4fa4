"""The content of the UI tests: a small lake, and a Dagster instance with the runs that created it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import dagster as dg

from cdc_pipeline.definitions import defs
from cdc_pipeline_tests.local_kafka.feed import Record, capture_records
from cdc_pipeline_tests.support.lakes.runs import environment
from cdc_pipeline_tests.support.messages import record_line
from cdc_pipeline_tests.support.servers.webserver import ROOT

CAPTURE = ROOT / "data" / "captures" / "shop"
TABLES = ("customers", "products")
NO_NUMBER = "twenty-five"
"""The `price` in one row of `shop.products`: causes a dead letter and a gap of the mirror."""


def shown_lake(folder: Path) -> tuple[Path, Path]:
    """Ingests two tables of the shop up to its second watermark, in one run per watermark. Returns (lake, DAGSTER_HOME).

    The second run has a row that breaks a rule.
    """
    captures, lake, home = folder / "captures", folder / "lake", folder / "dagster"
    captures.mkdir(parents=True)
    home.mkdir()
    shutil.copy(ROOT / "dagster.yaml", home)
    records = [record for record in capture_records(CAPTURE) if _table(record) in ("", *TABLES)]
    ends = [number for number, record in enumerate(records) if b"watermarkTs" in (record.value or b"")]
    first, second = (
        records[: ends[3] + 1],
        records[ends[3] + 1 : ends[7] + 1],
    )  # includes the watermark of the last partition
    bad = next(record for record in second if _table(record) == "products")
    second = [_broken(record) if record is bad else record for record in second]
    with environment(captures, lake), dg.DagsterInstance.from_config(str(home)) as instance:
        for number, part in enumerate((first, second)):
            lines = [
                record_line((record.value or b"").decode(), record.topic, record.partition, record.offset)
                for record in part
            ]
            (captures / f"{number}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
            ingest = defs().resolve_job_def("shop_ingest")
            assert ingest.execute_in_process(instance=instance).success
    return lake, home


def _table(record: Record) -> str:
    return str(json.loads(record.value or b"{}").get("table", ""))


def _broken(record: Record) -> Record:
    message = json.loads(record.value or b"{}")
    message["data"][0]["price"] = NO_NUMBER
    return replace(record, value=json.dumps(message).encode())
