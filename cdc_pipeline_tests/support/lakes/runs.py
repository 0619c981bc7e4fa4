"""Runs the default pipeline `shop` through Dagster, as `make demo` does, on any capture and lake."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dagster as dg
from pyspark.sql import SparkSession

from cdc_pipeline.definitions import defs
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.merge.soft_deletes import live_rows
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.local_kafka.feed import Record
from cdc_pipeline_tests.support.lakes.truth import differences


def records_until(records: Iterable[Record], watermark: int) -> list[Record]:
    """The records of a capture up to the last record with the watermark."""
    found = list(records)
    text = f'"watermarkTs":{watermark}'.encode()
    return found[: max(place for place, record in enumerate(found) if text in record.value) + 1]


def end_of_watermark(watermark: int, lines: list[str], partitions: int = 4) -> int:
    """The number of lines until every partition has the watermark."""
    seen: set[int] = set()
    for place, line in enumerate(lines):
        if f'\\"watermarkTs\\":{watermark}' in line:
            seen.add(json.loads(line)["partition"])
            if len(seen) == partitions:
                return place + 1
    raise AssertionError(f"watermark {watermark} is not in all partitions")


@contextmanager
def environment(captures: Path, lake: Path) -> Iterator[None]:
    with patch.dict(os.environ, {"CDC_CAPTURES": str(captures), "CDC_LAKE": str(lake)}):
        yield


def run_ingest(captures: Path, lake: Path, log_level: str = "ERROR") -> dg.ExecuteInProcessResult:
    """Loads the definitions and runs the job `shop_ingest`."""
    with environment(captures, lake), dg.DagsterInstance.ephemeral() as instance:
        job = defs().resolve_job_def("shop_ingest")
        return job.execute_in_process(
            instance=instance,
            raise_on_error=False,
            run_config={"loggers": {"console": {"config": {"log_level": log_level}}}},
        )


def failure_texts(result: dg.ExecuteInProcessResult) -> list[str]:
    return [
        event.step_failure_data.user_failure_data.description or ""
        for event in result.all_events
        if event.is_step_failure and event.step_failure_data.user_failure_data is not None
    ]


def delta_versions(spark: SparkSession, home: Path) -> dict[str, int]:
    """The newest version of every Delta table below `home`."""
    found = {}
    for log in sorted(home.rglob("_delta_log")):
        state = table_state(spark, str(log.parent))
        assert state is not None
        found[str(log.parent.relative_to(home))] = state.version
    return found


def mirror_differences(
    spark: SparkSession, paths: LakePaths, name: TableName, columns: list[Any], rows: list[list[str | None]]
) -> list[str]:
    """`truth.differences` of a mirror. `columns`: as in `expected.json`, or names only."""
    path = published_cut(Lake(spark, paths)).mirror_folder(name, paths)
    table = table_state(spark, path)
    if table is None:
        return [f"{name} has no mirror"]
    kinds = {column.name: str(column.type) for column in MirrorState.from_properties(table.properties).schema.columns}
    full = [
        column if isinstance(column, dict) else {"name": column, "type": kinds.get(column, "")} for column in columns
    ]
    keeps_deleted = MirrorState.from_properties(table.properties).has_soft_delete
    mirror = live_rows(spark.read.format("delta").load(path), keeps_deleted=keeps_deleted)
    return differences(mirror, full, rows)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
