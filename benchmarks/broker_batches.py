"""Batches of a pipeline that reads a real broker, with the cost of each stage."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession

from benchmarks.output import log
from benchmarks.processes import cpu_seconds, tree
from cdc_pipeline.dialects.decoded_tables import decode_batches
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sources.source import RunContext
from cdc_pipeline_tests.local_kafka.broker import LocalBroker


@dataclass(frozen=True)
class Stage:
    """Cost of one stage of a batch. `cpu_seconds`: of Python and Spark, without the broker."""

    name: str
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Batch:
    events: int
    """The records that the batch ingested."""
    changes: int
    """The row changes of its cut."""
    stages: tuple[Stage, ...]

    @property
    def seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages)

    @property
    def cpu_seconds(self) -> float:
        return sum(stage.cpu_seconds for stage in self.stages)

    def stage(self, name: str) -> Stage:
        """The stage `raw`, `decode` or `mirror`."""
        return next(stage for stage in self.stages if stage.name == name)


def run_batch(
    spark: SparkSession,
    pipeline: Pipeline,
    broker: LocalBroker,
    run_id: str,
    until: Mapping[str, Mapping[str, int]] | None = None,
) -> Batch:
    """Ingests, decodes and merges the new records, up to the end offsets `until`. The batch must publish a cut."""
    stages: list[Stage] = []

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        started, before = time.monotonic(), _cpu(broker)
        yield
        stages.append(Stage(name, time.monotonic() - started, _cpu(broker) - before))

    with timed("raw"):
        run = RunContext(run_id, lambda _: None)
        events = pipeline.source.ingest(Lake(spark, pipeline.paths), run, until).records
    with timed("decode"):
        decode_batches(Lake(spark, pipeline.paths))
    with timed("mirror"):
        report = CutMaker(Lake(spark, pipeline.paths), run_id, "UTC", 2, lambda _: None).advance()
    assert report.published
    batch = Batch(events, report.totals.changes, tuple(stages))
    stage_costs = ", ".join(
        f"{stage.name} {stage.seconds:.1f} s ({stage.cpu_seconds:.1f} CPU)" for stage in batch.stages
    )
    log(f"• {events:,} records in {batch.seconds:.1f} s, {batch.cpu_seconds:.1f} CPU s: {stage_costs}")
    return batch


def _cpu(broker: LocalBroker) -> float:
    """CPU-seconds of this process and its descendants, without the broker."""
    return cpu_seconds(tree(os.getpid(), {broker.pid or 0}))
