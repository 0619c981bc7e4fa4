"""How long decoding takes over the floor job, for messages of two sizes.

The floor job is the least that Spark can do with records: it reads them from Parquet and appends them to a Delta table,
the bytes as they are. Decoding is `dialects.change_tables.decoded_batches` on the same records, which the lake's raw
snapshot has as its next batch: it ends with the batch's change log, watermarks, dead letters and DDL history written.

Two ratios of the medians are printed. `decode/floor` is the one job over the other. `decode ratio` is (floor + decode)
over floor: the floor job stands for taking the records in, so that it is the ratio that DESIGN §6 wants at 2.0 or less,
but for the broker, for which Parquet stands here.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from benchmarks.batches import local_spark
from benchmarks.messages import LARGE, PARTITIONS, SMALL, MessageShape, topic_records
from benchmarks.told import say
from cdc_pipeline.dialects.change_tables import decoded_batches
from cdc_pipeline.dialects.unified import DEAD
from cdc_pipeline.resources.delta import Commit, append_once
from cdc_pipeline.resources.jvm import jvm
from cdc_pipeline.resources.lake import LakePaths
from cdc_pipeline.sources.raw_snapshot import newest_batch, raw_app_id
from cdc_pipeline.sources.records import RECORD

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

DEFAULT_RECORDS = 1_000_000
DEFAULT_REPEAT = 3
WARM_UP_RECORDS = 100_000
TARGET = 2.0


class BenchmarkError(RuntimeError):
    """What was timed is not what was to be measured."""


@dataclass(frozen=True)
class Measured:
    """Medians over the repetitions for one shape of message."""

    message_bytes: float
    records: int
    floor_seconds: float
    decode_seconds: float

    @property
    def decode_over_floor(self) -> float:
        return self.decode_seconds / self.floor_seconds

    @property
    def decode_ratio(self) -> float:
        return (self.floor_seconds + self.decode_seconds) / self.floor_seconds


def main() -> int:
    arguments = _arguments()
    say("starting Spark")
    spark = local_spark()
    try:
        with tempfile.TemporaryDirectory(prefix="cdc_pipeline-benchmark-") as folder:
            measured = [
                measured_shape(spark, shape, Path(folder, shape.table), arguments.records, arguments.repeat)
                for shape in (SMALL, LARGE)
            ]
    finally:
        spark.stop()
    print(table_of(measured))
    return 0


def measured_shape(spark: SparkSession, shape: MessageShape, folder: Path, records: int, repeat: int) -> Measured:
    """Runs both jobs `repeat` times, after a smaller batch that warms up the JVM. Every batch goes on in one topic."""
    name = f"{shape.database}.{shape.table}"
    first_offset = 0
    floors: list[float] = []
    decodes: list[float] = []
    sizes: list[float] = []
    warm_up = min(records, WARM_UP_RECORDS)
    for round_number, count in enumerate([warm_up, *[records] * repeat]):
        title = f"{name} {f'{round_number}/{repeat}' if round_number else 'warm-up'}"
        say(f"{title}: making {count:,} records")
        parquet = str(folder / "records")
        topic_records(spark, shape, first_offset, count).write.mode("overwrite").parquet(parquet)
        first_offset += count // PARTITIONS
        floor, decode = _timed_round(spark, parquet, folder, count)
        say(f"{title}: floor {floor:.2f} s, decode {decode:.2f} s")
        if round_number:
            floors.append(floor)
            decodes.append(decode)
            sizes.append(_average_bytes(spark, parquet))
    # what the next shape's files need less of the disk and of its cache
    shutil.rmtree(folder)
    return Measured(median(sizes), records, median(floors), median(decodes))


def table_of(measured: Sequence[Measured]) -> str:
    """The results as lines of text."""
    lines = [f"{'bytes':>6} {'records':>10} {'floor s':>8} {'decode s':>9} {'decode/floor':>13} {'decode ratio':>13}"]
    lines += [
        f"{each.message_bytes:>6.0f} {each.records:>10,} {each.floor_seconds:>8.2f} {each.decode_seconds:>9.2f} "
        f"{each.decode_over_floor:>13.2f} {each.decode_ratio:>13.2f}"
        for each in measured
    ]
    return "\n".join([*lines, f"decode ratio = (floor + decode) / floor, target at most {TARGET}"])


def _timed_round(spark: SparkSession, parquet: str, folder: Path, count: int) -> tuple[float, float]:
    """Seconds of the floor job and of decoding, for the same records."""
    paths = LakePaths(str(folder / "lake"), "benchmark")
    floor = _seconds(spark, lambda: _append_floor(spark, parquet, str(folder / "floor")))
    _append_raw_batch(spark, paths, parquet)
    decode = _seconds(spark, lambda: _decode_batch(spark, paths, count))
    return floor, decode


def _append_floor(spark: SparkSession, parquet: str, table: str) -> None:
    spark.read.schema(RECORD).parquet(parquet).write.format("delta").mode("append").save(table)


def _append_raw_batch(spark: SparkSession, paths: LakePaths, parquet: str) -> None:
    batch_id = newest_batch(spark, paths) + 1
    records = spark.read.schema(RECORD).parquet(parquet)
    batch = records.select(F.lit(batch_id).cast("bigint").alias("batch_id"), "*")
    note = {"batch": batch_id, "run_id": "benchmark", "files": []}
    append_once(batch, paths.table("raw_topic_snapshot"), Commit(raw_app_id(paths), batch_id, note))


def _decode_batch(spark: SparkSession, paths: LakePaths, count: int) -> None:
    """Raises BenchmarkError where decoding did not do its whole work on the whole batch."""
    batches = decoded_batches(spark, paths)
    if len(batches) != 1:
        raise BenchmarkError(f"one batch was to be decoded, not {len(batches)}")
    counts = batches[0].counts
    if counts.records != count or sum(counts.by_kind.values()) != count:
        raise BenchmarkError(f"{count} records went in, {counts.records} were counted and became {counts.by_kind}")
    if counts.by_kind[DEAD]:
        raise BenchmarkError(f"there are dead letters: {counts.by_kind}")


def _seconds(spark: SparkSession, job: Callable[[], None]) -> float:
    # neither job pays for the garbage of what ran before it
    jvm(spark).java.lang.System.gc()
    started = time.monotonic()
    job()
    return time.monotonic() - started


def _average_bytes(spark: SparkSession, parquet: str) -> float:
    row = spark.read.schema(RECORD).parquet(parquet).agg(F.avg(F.octet_length("value"))).first()
    if row is None:
        raise BenchmarkError("an aggregate without a row")
    return float(row[0])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.decode", description="Times decoding over the floor job.")
    parser.add_argument(
        "--records", type=_records, default=DEFAULT_RECORDS, help="records of a repetition (%(default)s)"
    )
    parser.add_argument("--repeat", type=_at_least_one, default=DEFAULT_REPEAT, help="repetitions (%(default)s)")
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
