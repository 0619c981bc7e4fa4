"""Batches of a pipeline that reads a real broker, with the cost of each stage."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

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


@dataclass
class StageClock:
    """Measures the stages of a batch one after another."""

    without: Collection[int] = ()
    """Processes whose CPU is not counted."""
    stages: list[Stage] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started, before = time.monotonic(), self._cpu_seconds()
        yield
        self.stages.append(Stage(name, time.monotonic() - started, self._cpu_seconds() - before))

    def _cpu_seconds(self) -> float:
        """Of this process and its descendants."""
        return cpu_seconds(tree(os.getpid(), self.without))


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
    broker: LocalBroker | None,
    run_id: str,
    until: Mapping[str, Mapping[str, int]] | None = None,
) -> Batch:
    """Ingests, decodes and merges the new records, up to the end offsets `until`. The batch must publish a cut.

    `broker`: its CPU is not counted. None if another process has started it.
    """
    clock = StageClock({broker.pid or 0} if broker else ())
    with clock.stage("raw"):
        run = RunContext(run_id, lambda _: None)
        events = pipeline.source.ingest(Lake(spark, pipeline.paths), run, until).records
    with clock.stage("decode"):
        decode_batches(Lake(spark, pipeline.paths))
    with clock.stage("mirror"):
        report = CutMaker(Lake(spark, pipeline.paths), run_id, "UTC", 2, lambda _: None).advance()
    assert report.published
    batch = Batch(events, report.totals.changes, tuple(clock.stages))
    log(f"• {events:,} records in {costs_text(batch.stages)}")
    return batch


def costs_text(stages: Sequence[Stage]) -> str:
    """Seconds and CPU-seconds of a batch and of each of its stages."""
    parts = ", ".join(f"{stage.name} {stage.seconds:.1f} s ({stage.cpu_seconds:.1f} CPU)" for stage in stages)
    seconds, cpu = sum(stage.seconds for stage in stages), sum(stage.cpu_seconds for stage in stages)
    return f"{seconds:.1f} s, {cpu:.1f} CPU s: {parts}"
