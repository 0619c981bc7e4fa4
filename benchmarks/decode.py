"""`make bench`: time of a topic into raw and change log, over a minimal Spark job (the floor).

The floor job reads records from a broker and appends the bytes to a Delta table. The pipeline ingests the same offsets in
one batch and decodes it into change log, watermarks, dead letters and DDL history. `decode ratio` is
(raw + decode) / floor, `decode/floor` decoding alone: medians, for messages of two sizes. All records are in the broker
before the clock starts.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.batches import local_spark
from benchmarks.messages import LARGE, PARTITIONS, SMALL, MessageShape
from benchmarks.output import log
from benchmarks.results import Figure, add_json_option, report
from benchmarks.topics import send
from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import KafkaSource
from cdc_pipeline.dialects.decoded_tables import decode_batches
from cdc_pipeline.dialects.unified import DEAD
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sources.records import RECORD
from cdc_pipeline.sources.source import RunContext
from cdc_pipeline.spark.jvm import jvm
from cdc_pipeline_tests.local_kafka.broker import LocalBroker
from cdc_pipeline_tests.local_kafka.feed import create_topics

DEFAULT_RECORDS = 1_000_000
DEFAULT_REPEAT = 3
WARM_UP_RECORDS = 100_000
TARGET = 2.0
_FLOOR_COLUMNS = [name for name in RECORD.fieldNames() if name != "timestamp_ms"]  # Kafka has no such column


class BenchmarkError(RuntimeError):
    """The timed job did not do the expected work."""


@dataclass(frozen=True)
class Measured:
    """Medians over the repetitions for one message shape, in seconds."""

    message_bytes: float
    records: int
    floor: float
    raw: float
    decode: float

    @property
    def decode_over_floor(self) -> float:
        return self.decode / self.floor

    @property
    def decode_ratio(self) -> float:
        return (self.raw + self.decode) / self.floor


def main() -> int:
    arguments = _arguments()
    log("starting Spark")
    spark = local_spark()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="cdc_pipeline-benchmark-") as folder,
            LocalBroker(Path(folder, "kafka"), heap="1g") as broker,
        ):
            measured = [
                measure_shape(spark, broker, shape, Path(folder, shape.table), arguments.records, arguments.repeat)
                for shape in (SMALL, LARGE)
            ]
    finally:
        spark.stop()
    print(table_of(measured))
    report(figures_of(measured), arguments.json)
    return 0


def measure_shape(
    spark: SparkSession, broker: LocalBroker, shape: MessageShape, folder: Path, records: int, repeat: int
) -> Measured:
    """Runs both jobs `repeat` times in one topic, after a smaller batch that warms up the JVM."""
    topic = f"{shape.database}-{shape.table}"
    create_topics(broker.bootstrap, {topic: PARTITIONS})
    source = KafkaSource(
        type="kafka", bootstrap_servers=broker.bootstrap, topics=[topic], max_records_per_batch=records
    )
    pipeline = CdcPipeline(name="benchmark", source=source, lake=str(folder / "lake")).pipeline
    end = 0
    rounds: list[tuple[float, float, float]] = []
    warm_up = min(records, WARM_UP_RECORDS)
    for round_number, count in enumerate([warm_up, *[records] * repeat]):
        title = f"{topic} {f'{round_number}/{repeat}' if round_number else 'warm-up'}"
        log(f"{title}: sending {count:,} records")
        send(spark, broker.bootstrap, topic, shape, end, count)
        first, end = end, end + count // PARTITIONS
        floor = _seconds(spark, lambda: _append_floor(spark, broker.bootstrap, topic, first, end, folder))  # noqa: B023
        raw = _seconds(spark, lambda: _append_raw(spark, pipeline, topic, end, count))  # noqa: B023
        decode = _seconds(spark, lambda: _decode_batch(spark, pipeline, count))  # noqa: B023
        log(f"{title}: floor {floor:.2f} s, raw {raw:.2f} s, decode {decode:.2f} s")
        if round_number:
            rounds.append((floor, raw, decode))
    size = _average_bytes(spark, str(folder / "floor"))
    # frees disk and page cache for the next shape
    shutil.rmtree(folder)
    floors, raws, decodes = zip(*rounds, strict=True)
    return Measured(size, records, median(floors), median(raws), median(decodes))


def table_of(measured: Sequence[Measured]) -> str:
    """The results as lines of text."""
    names = f"{'bytes':>6} {'records':>10} {'floor s':>8} {'raw s':>7} {'decode s':>9}"
    heads = f"{names} {'decode/floor':>13} {'decode ratio':>13}"
    lines = [
        f"{each.message_bytes:>6.0f} {each.records:>10,} {each.floor:>8.2f} {each.raw:>7.2f} {each.decode:>9.2f} "
        f"{each.decode_over_floor:>13.2f} {each.decode_ratio:>13.2f}"
        for each in measured
    ]
    return "\n".join([heads, *lines, f"decode ratio = (raw + decode) / floor, target at most {TARGET}"])


def figures_of(measured: Sequence[Measured]) -> list[Figure]:
    """The figures of the small and of the large messages."""
    figures: list[Figure] = []
    for size, each in zip(("small", "large"), measured, strict=True):
        figures += [
            Figure(f"decode_{size}_ratio", each.decode_ratio, "ratio", TARGET),
            Figure(f"decode_{size}_floor_seconds", each.floor, "s"),
            Figure(f"decode_{size}_raw_seconds", each.raw, "s"),
            Figure(f"decode_{size}_decode_seconds", each.decode, "s"),
        ]
    return figures


def _append_floor(spark: SparkSession, bootstrap: str, topic: str, first: int, end: int, folder: Path) -> None:
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": _offsets(topic, first),
        "endingOffsets": _offsets(topic, end),
        "includeHeaders": "true",
    }
    records = spark.read.format("kafka").options(**options).load()
    records.select(*_FLOOR_COLUMNS).write.format("delta").mode("append").save(str(folder / "floor"))


def _offsets(topic: str, offset: int) -> str:
    return json.dumps({topic: dict.fromkeys(map(str, range(PARTITIONS)), offset)})


def _append_raw(spark: SparkSession, pipeline: Pipeline, topic: str, end: int, count: int) -> None:
    until = {topic: dict.fromkeys(map(str, range(PARTITIONS)), end)}
    taken = pipeline.source.ingest(Lake(spark, pipeline.paths), RunContext(f"run-{end}", lambda _: None), until)
    if taken.records != count:
        raise BenchmarkError(f"expected {count} records in raw, found {taken.records}")


def _decode_batch(spark: SparkSession, pipeline: Pipeline, count: int) -> None:
    """Raises BenchmarkError if decoding did not classify every record of the batch."""
    batches = decode_batches(Lake(spark, pipeline.paths))
    if len(batches) != 1:
        raise BenchmarkError(f"expected one decoded batch, found {len(batches)}")
    counts = batches[0].counts
    if counts.records != count or sum(counts.by_kind.values()) != count:
        raise BenchmarkError(f"expected {count} records, counted {counts.records}: {counts.by_kind}")
    if counts.by_kind[DEAD]:
        raise BenchmarkError(f"expected no dead letters, found {counts.by_kind}")


def _seconds(spark: SparkSession, job: Callable[[], None]) -> float:
    # neither job collects the garbage of the previous one
    jvm(spark).java.lang.System.gc()
    started = time.monotonic()
    job()
    return time.monotonic() - started


def _average_bytes(spark: SparkSession, table: str) -> float:
    row = spark.read.format("delta").load(table).agg(F.avg(F.octet_length("value"))).first()
    if row is None:
        raise BenchmarkError(f"{table} has no records")
    return float(row[0])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.decode", description="Times decoding over the floor job.")
    parser.add_argument(
        "--records", type=_records, default=DEFAULT_RECORDS, help="records per repetition (%(default)s)"
    )
    parser.add_argument("--repeat", type=_at_least_one, default=DEFAULT_REPEAT, help="repetitions (%(default)s)")
    add_json_option(parser)
    return parser.parse_args()


def _records(text: str) -> int:
    number = _at_least_one(text)
    if number % PARTITIONS:
        raise argparse.ArgumentTypeError(f"{number} is not a multiple of {PARTITIONS}, the number of partitions")
    return number


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
