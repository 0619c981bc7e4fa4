"""`make bench-end-to-end`: events per CPU-second and per second from a broker to the mirror, when warm.

A real broker and a topic of one table with generated TiCDC messages of about 490 bytes (63 % UPDATE, 30 % INSERT, 7 % DELETE
over 75,000 keys). Each batch of `--batch` records goes into raw, change log and mirror, with a cut. The records are in
the broker before the clock starts. CPU is that of Python and Spark, without the broker. At the end the mirror is compared
with the newest event of each key.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.batches import local_spark
from benchmarks.broker_batches import Batch, run_batch
from benchmarks.output import log
from benchmarks.processes import peak_memory
from benchmarks.results import Figure, add_json_option, report
from benchmarks.topics import fill_topic
from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import KafkaSource
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline_tests.local_kafka.broker import LocalBroker

TOPIC = "accounts"
TARGET_PER_CPU_SECOND = 26_000
TARGET_PER_SECOND = 45_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_200_000, help="measured events")
    parser.add_argument("--batch", type=int, default=300_000, help="records per batch")
    parser.add_argument("--warm-up", type=int, default=2, help="batches before the measurement")
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 4])
    add_json_option(parser)
    options = parser.parse_args()
    figures: list[Figure] = []
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
                        run_batch(spark, pipeline, broker, f"run-{end}", _until(partitions, end))
                        for end in range(options.batch, (count + 1) * options.batch, options.batch)
                    ]
            _check(spark, pipeline)
        measured = batches[options.warm_up :]
        _print_costs(partitions, measured, peak.bytes)
        figures += figures_of(partitions, measured, peak.bytes)
    spark.stop()
    report(figures, options.json)
    return 0


def _until(partitions: int, end: int) -> dict[str, dict[str, int]]:
    """End offsets of the topic's first `end` records, and of the CREATE TABLE in partition 0."""
    return {TOPIC: {str(number): end // partitions + (number == 0) for number in range(partitions)}}


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


def figures_of(partitions: int, batches: Sequence[Batch], peak: int) -> list[Figure]:
    """The figures of the topic with this number of partitions. `peak`: bytes."""
    events = sum(batch.events for batch in batches)
    seconds, cpu = sum(batch.seconds for batch in batches), sum(batch.cpu_seconds for batch in batches)
    prefix = f"end_to_end_{partitions}_partition{'s'[: partitions > 1]}"
    return [
        Figure(f"{prefix}_per_cpu_second", events / cpu, "events/CPU-s", TARGET_PER_CPU_SECOND, at_least=True),
        Figure(f"{prefix}_per_second", events / seconds, "events/s", TARGET_PER_SECOND, at_least=True),
        Figure(f"{prefix}_peak_memory", peak / 1e9, "GB"),
    ]


def _print_costs(partitions: int, batches: Sequence[Batch], peak: int) -> None:
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
