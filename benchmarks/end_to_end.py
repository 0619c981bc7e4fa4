"""`make bench-end-to-end`: events per CPU-second and per second from a broker to the mirror, when warm.

A real broker and a topic of one table with generated TiCDC messages of about 490 bytes (63 % UPDATE, 30 % INSERT, 7 % DELETE
over 75,000 keys). Each batch of `--batch` records goes into raw, change log and mirror, with a cut. The records are in
the broker before the clock starts. CPU is that of Python and Spark, without the broker. At the end the mirror is compared
with the newest event of each key.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from benchmarks.batches import local_spark
from benchmarks.output import log
from benchmarks.processes import cpu_seconds, peak_memory, tree
from benchmarks.topics import fill_topic
from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import KafkaSource
from cdc_pipeline.dialects.decoded_tables import decode_batches
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.sources.source import RunContext
from cdc_pipeline_tests.local_kafka.broker import LocalBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from cdc_pipeline.pipeline import Pipeline

TOPIC = "accounts"


@dataclass(frozen=True)
class Stage:
    """Cost of one stage of a batch."""

    name: str
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Batch:
    events: int
    stages: tuple[Stage, ...]

    @property
    def seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages)

    @property
    def cpu_seconds(self) -> float:
        return sum(stage.cpu_seconds for stage in self.stages)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_200_000, help="measured events")
    parser.add_argument("--batch", type=int, default=300_000, help="records per batch")
    parser.add_argument("--warm-up", type=int, default=2, help="batches before the measurement")
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 4])
    options = parser.parse_args()
    spark = local_spark()
    for partitions in options.partitions:
        with tempfile.TemporaryDirectory(prefix="cdc_pipeline-end-to-end-") as folder:
            with LocalBroker(Path(folder, "kafka"), heap="1g") as broker:
                count = options.warm_up + options.events // options.batch
                log(f"{partitions} partitions: producing {count} × {options.batch:,} records")
                fill_topic(spark, broker.bootstrap, TOPIC, partitions, count * options.batch)
                source = KafkaSource(
                    type="kafka",
                    bootstrap_servers=broker.bootstrap,
                    topics=[TOPIC],
                    max_records_per_batch=options.batch,
                )
                pipeline = CdcPipeline(name="bench", source=source, lake=str(Path(folder, "lake"))).pipeline
                with peak_memory((broker.pid or 0,)) as peak:
                    batches = [
                        _batch(spark, pipeline, broker, partitions, (number + 1) * options.batch)
                        for number in range(count)
                    ]
            _check(spark, pipeline)
        _report(partitions, batches[options.warm_up :], peak.bytes)
    spark.stop()
    return 0


def _batch(spark: SparkSession, pipeline: Pipeline, broker: LocalBroker, partitions: int, end: int) -> Batch:
    """Runs the pipeline up to `end` records."""
    until = {TOPIC: {str(number): end // partitions + (number == 0) for number in range(partitions)}}
    stages: list[Stage] = []

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        started, before = time.monotonic(), _cpu(broker)
        yield
        stages.append(Stage(name, time.monotonic() - started, _cpu(broker) - before))

    run = RunContext(f"run-{end}", lambda _: None)
    with timed("raw"):
        events = pipeline.source.ingest(Lake(spark, pipeline.paths), run, until).records
    with timed("decode"):
        decode_batches(Lake(spark, pipeline.paths))
    with timed("mirror"):
        report = CutMaker(Lake(spark, pipeline.paths), run.run_id, "UTC", 2, lambda _: None).advance()
    assert report.published
    batch = Batch(events, tuple(stages))
    stage_costs = ", ".join(
        f"{stage.name} {stage.seconds:.1f} s ({stage.cpu_seconds:.1f} CPU)" for stage in batch.stages
    )
    log(f"• {events:,} records in {batch.seconds:.1f} s, {batch.cpu_seconds:.1f} CPU s: {stage_costs}")
    return batch


def _cpu(broker: LocalBroker) -> float:
    """CPU-seconds of this process and its descendants, without the broker."""
    return cpu_seconds(tree(os.getpid(), {broker.pid or 0}))


def _check(spark: SparkSession, pipeline: Pipeline) -> None:
    """Asserts that the mirror has the newest image of each live key at the resolved TSO."""
    paths = pipeline.paths
    cut = spark.read.format("delta").load(paths.table("consistent_cuts")).orderBy(F.desc("cut_id")).first()
    assert cut is not None
    log = spark.read.format("delta").load(paths.table("raw_topic_snapshot"))
    text = F.col("value").cast("string")
    fields = log.select(
        F.get_json_object(text, "$.type").alias("type"),
        F.get_json_object(text, "$.data[0].id").cast("bigint").alias("id"),
        F.get_json_object(text, "$.data[0].balance").cast("decimal(12,2)").alias("balance"),
        F.get_json_object(text, "$._tidb.commitTs").cast("bigint").alias("ts"),
    ).where(F.col("type").isin("INSERT", "UPDATE", "DELETE") & (F.col("ts") <= cut["resolved_tso"]))
    newest = fields.groupBy("id").agg(F.max_by(F.struct("type", "balance"), "ts").alias("last"))
    wanted = newest.where("last.type <> 'DELETE'").select("id", "last.balance")
    found = spark.read.format("delta").load(paths.mirror(TableName("shop", "accounts"))).select("id", "balance")
    differing = wanted.exceptAll(found).count() + found.exceptAll(wanted).count()
    assert differing == 0, f"{differing} rows of the mirror differ from the topic"
    assert found.count() > 0


def _report(partitions: int, batches: list[Batch], peak: int) -> None:
    events = sum(batch.events for batch in batches)
    seconds, cpu = sum(batch.seconds for batch in batches), sum(batch.cpu_seconds for batch in batches)
    print(f"{partitions} partition{'s'[: partitions > 1]}: {events:,} events in {seconds:.1f} s, {cpu:.1f} CPU s")
    print(f"  {events / cpu:,.0f} events per CPU-second, {events / seconds:,.0f} per second; peak {peak / 1e9:.1f} GB")
    for index, name in enumerate(stage.name for stage in batches[0].stages):
        took = [batch.stages[index] for batch in batches]
        wall, spent = sum(stage.seconds for stage in took), sum(stage.cpu_seconds for stage in took)
        print(f"  {name:<8} {wall:6.1f} s {spent:6.1f} CPU s {spent / cpu:6.0%}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
