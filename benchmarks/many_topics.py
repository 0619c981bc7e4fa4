"""`make bench-many-topics`: cost of a small batch from 300 topics, when warm.

A real broker and `--topics` topics of one partition: TiCDC's default dispatch is a topic per table, and each topic gets
every watermark. Each batch has `--changes` inserts in the first topic and a watermark in each topic. It goes into raw,
change log and mirror, with a cut. CPU is that of Python and Spark, without the broker.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from benchmarks.account_messages import account_row, create_table, current_tso, row_change, watermark
from benchmarks.batches import local_spark
from benchmarks.broker_batches import Batch, run_batch
from benchmarks.output import log
from benchmarks.results import Figure, add_json_option, report
from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import KafkaSource
from cdc_pipeline_tests.local_kafka.broker import LocalBroker
from cdc_pipeline_tests.local_kafka.feed import Record, create_topics, produce

RAW_TARGETS = {300: 8.0, 1000: 25.0}
"""Number of topics → seconds of raw."""
_TOPICS_PER_REQUEST = 100


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=300, help="topics of one partition")
    parser.add_argument("--changes", type=int, default=50, help="changes per batch, all in the first topic")
    parser.add_argument("--rounds", type=int, default=3, help="measured batches, after one that is not")
    add_json_option(parser)
    options = parser.parse_args()
    spark = local_spark()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="cdc_pipeline-many-topics-") as folder,
            LocalBroker(Path(folder, "kafka"), heap="1g") as broker,
        ):
            batches = measure(spark, broker, Path(folder, "lake"), options.topics, options.changes, options.rounds)
    finally:
        spark.stop()
    print(f"{'topics':>8} {'raw s':>8} {'decode s':>9} {'mirror s':>9} {'total s':>9} {'CPU s':>8}")
    raw, decode, mirror = (_median_seconds(batches, name) for name in ("raw", "decode", "mirror"))
    total, cpu = median(batch.seconds for batch in batches), median(batch.cpu_seconds for batch in batches)
    print(f"{options.topics:>8,} {raw:>8.2f} {decode:>9.2f} {mirror:>9.2f} {total:>9.2f} {cpu:>8.2f}")
    print(f"(batches of {options.changes:,} changes and {options.topics:,} watermarks, medians of {options.rounds})")
    report(figures_of(options.topics, batches), options.json)
    return 0


def measure(
    spark: SparkSession, broker: LocalBroker, lake: Path, topic_count: int, changes: int, rounds: int
) -> list[Batch]:
    """The measured batches."""
    topics = [f"shop-{number:04}" for number in range(topic_count)]
    log(f"creating {topic_count:,} topics")
    for first in range(0, topic_count, _TOPICS_PER_REQUEST):
        create_topics(broker.bootstrap, dict.fromkeys(topics[first : first + _TOPICS_PER_REQUEST], 1))
    source = KafkaSource(type="kafka", bootstrap_servers=broker.bootstrap, topics=topics)
    pipeline = CdcPipeline(name="benchmark", source=source, lake=str(lake)).pipeline
    batches: list[Batch] = []
    for number in range(rounds + 1):
        records = batch_records(topics, number, changes)
        for _ in produce(broker.bootstrap, records):
            pass
        batch = run_batch(spark, pipeline, broker, f"run-{number}")
        assert batch.events == len(records), f"expected {len(records)} records in raw, found {batch.events}"
        assert batch.changes == changes, f"the cut has {batch.changes} changes, expected {changes}"
        batches.append(batch)
    return batches[1:]


def batch_records(topics: Sequence[str], batch: int, changes: int) -> list[Record]:
    """The records of a batch: inserts of new keys in the first topic, then one watermark in each topic.

    The first batch (0) begins with the CREATE TABLE.
    """
    values = [create_table(current_tso())] if batch == 0 else []
    for key in range(batch * changes, (batch + 1) * changes):
        values.append(row_change(current_tso(), "INSERT", account_row(key, key / 100)))
    resolved = watermark(current_tso())
    messages = [(topics[0], value) for value in values] + [(topic, resolved) for topic in topics]
    return [Record(topic, 0, 0, None, None, value) for topic, value in messages]


def figures_of(topic_count: int, batches: Sequence[Batch]) -> list[Figure]:
    """Medians of the batches."""
    prefix = f"many_topics_{topic_count}"
    return [
        Figure(f"{prefix}_raw_seconds", _median_seconds(batches, "raw"), "s", RAW_TARGETS.get(topic_count)),
        Figure(f"{prefix}_batch_seconds", median(batch.seconds for batch in batches), "s"),
        Figure(f"{prefix}_batch_cpu_seconds", median(batch.cpu_seconds for batch in batches), "CPU-s"),
    ]


def _median_seconds(batches: Sequence[Batch], stage: str) -> float:
    return median(batch.stage(stage).seconds for batch in batches)


if __name__ == "__main__":
    sys.exit(main())
