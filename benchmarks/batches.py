"""A Spark session, and batches for raw, change log and mirrors without a broker.

A batch is a frame with one column `value`, one message per row. `row_message` generates messages from numbers, for tables
with the columns `id`, `v` and `n`. All messages of a batch have one commit TSO, and a watermark above it comes last.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.processes import cpu_seconds
from cdc_pipeline.dialects.decoded_tables import decode_batches
from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.writes import append_once
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import CutReport
from cdc_pipeline.sources.raw_batches import raw_app_id
from cdc_pipeline.sources.records import HEADERS
from cdc_pipeline.spark.session import SparkLakehouse

START_MS = 1_795_248_690_000
_TYPES = '{"id":"bigint","v":"varchar(64)","n":"int"}'
_TSO = "COMMIT"
ROWS_OF_A_BATCH = 1_000_000
"""Of `BenchmarkLake.load`."""
OFFSETS_OF_A_BATCH = 1 << 40  # above monotonically_increasing_id of a hundred partitions


@dataclass(frozen=True)
class Cost:
    """Seconds per stage of a batch. `cpu`: CPU-seconds of this process, its JVM and their ended children."""

    raw: float
    decode: float
    cut: float
    cpu: float

    @property
    def total(self) -> float:
        return self.raw + self.decode + self.cut


def local_spark(*stores: str) -> SparkSession:
    """The session of the pipelines in `defs/`, with the same environment variables."""
    return SparkLakehouse(
        stores=list(stores),
        master=os.environ.get("CDC_SPARK_MASTER", "local[*]"),
        driver_memory=os.environ.get("CDC_DRIVER_MEMORY", "4g"),
    ).session


@dataclass
class BenchmarkLake:
    """A lake that ingests one batch after another."""

    spark: SparkSession
    folder: Path | str
    """Local, or a URI."""
    batch: int = 0
    """The newest batch."""
    report: CutReport | None = None
    """Of the newest cut."""

    @property
    def paths(self) -> LakePaths:
        return LakePaths(str(self.folder), "benchmark")

    def append_raw(self, changes: DataFrame) -> float:
        """Appends the changes to the raw snapshot as the next batch. Returns the seconds."""
        self.batch += 1
        ms = START_MS + self.batch * 1000
        watermark = self.spark.range(1).select(F.lit(_watermark(ms)).alias("value"))
        # the union keeps this order: the watermark has the highest offset
        records = changes.select("value").union(watermark)
        note = {"batch": self.batch, "run_id": "benchmark", "files": [], "offsets": []}
        started = time.monotonic()
        append_once(
            records.select(
                F.lit(self.batch).cast("bigint").alias("batch_id"),
                F.lit("benchmark").alias("topic"),
                F.lit(0).alias("partition"),
                (F.lit(self.batch * OFFSETS_OF_A_BATCH) + F.monotonically_increasing_id()).alias("offset"),
                F.timestamp_millis(F.lit(ms)).alias("timestamp"),
                F.lit(None).cast("binary").alias("key"),
                F.replace("value", F.lit(_TSO), F.lit(str(ms << TSO_SHIFT))).cast("binary").alias("value"),
                F.lit(None).cast(HEADERS).alias("headers"),
            ),
            self.paths.table("raw_topic_snapshot"),
            Commit(raw_app_id(self.paths), self.batch, note),
        )
        return time.monotonic() - started

    def decode(self) -> float:
        """Returns the seconds."""
        started = time.monotonic()
        decode_batches(Lake(self.spark, self.paths))
        return time.monotonic() - started

    def make_cut(self, changes: int, threads: int = 2) -> float:
        """Makes a cut, which must have this number of changes. Returns its seconds, from plan to publication."""
        started = time.monotonic()
        report = CutMaker(Lake(self.spark, self.paths), "benchmark", "UTC", threads, lambda _: None).advance()
        seconds = time.monotonic() - started
        self.report = report
        assert report.published
        assert report.totals.changes == changes, f"the cut has {report.totals.changes} changes, expected {changes}"
        return seconds

    def load(self, rows: int) -> float:
        """Inserts rows with the keys from 0 in one cut. Returns its seconds."""
        for first in range(0, rows, ROWS_OF_A_BATCH):
            inserts = self.spark.range(first, min(first + ROWS_OF_A_BATCH, rows))
            self.append_raw(inserts.select(row_message("INSERT", F.col("id"), self.batch + 1).alias("value")))
        self.decode()
        return self.make_cut(rows)

    def run(self, changes: DataFrame, count: int, threads: int = 2) -> Cost:
        """Runs one batch of `count` changes through all stages."""
        before = self._cpu_seconds()
        raw, decode, cut = self.append_raw(changes), self.decode(), self.make_cut(count, threads)
        return Cost(raw, decode, cut, self._cpu_seconds() - before)

    def _cpu_seconds(self) -> float:
        # not of all descendants: the time of those that end would be lost
        jvm = self.spark.sparkContext._jvm
        assert jvm is not None
        return cpu_seconds([os.getpid(), jvm.java.lang.ProcessHandle.current().pid()])


def create_message(table: str) -> str:
    """The CREATE TABLE message for the rows of `row_message`."""
    sql = f"CREATE TABLE `{table}` (`id` BIGINT PRIMARY KEY, `v` VARCHAR(64), `n` INT)"
    return (
        f'{{"id":0,"database":"db","table":"{table}","pkNames":null,"isDdl":true,"type":"CREATE","es":{START_MS},'
        f'"ts":{START_MS},"sql":"{sql}","sqlType":null,"mysqlType":null,"data":null,"old":null,'
        f'"_tidb":{{"commitTs":{START_MS << TSO_SHIFT}}}}}'
    )


def row_message(kind: str, key: Column, batch: int, table: str | Column = "t", before: Column | None = None) -> Column:
    """An INSERT, UPDATE or DELETE message of the batch; the values follow from key and batch.

    `before`: the batch that wrote the former row; None: the former row is equal.
    """

    def row_of(writer: Column) -> Column:
        return F.format_string('{"id":"%d","v":"value of %d in batch %d","n":"%d"}', key, key, writer, writer)

    new = row_of(F.lit(batch))
    former = new if before is None else row_of(before)
    row = former if kind == "DELETE" else new
    old = F.concat(F.lit("["), former, F.lit("]")) if kind == "UPDATE" else F.lit("null")
    ms = START_MS + batch * 1000
    return F.concat(
        F.lit('{"id":0,"database":"db","table":"'),
        F.lit(table) if isinstance(table, str) else table,
        F.lit(
            f'","pkNames":["id"],"isDdl":false,"type":"{kind}","es":{ms},"ts":{ms + 9},"sql":"",'
            f'"sqlType":{{"id":-5,"v":12,"n":4}},"mysqlType":{_TYPES},"data":['
        ),
        row,
        F.lit('],"old":'),
        old,
        F.lit(f',"_tidb":{{"commitTs":{_TSO}}}}}'),
    )


def mixed_changes(
    number: Column,
    key: Column,
    new_key: Column,
    batch: int,
    table: str | Column = "t",
    before: Column | None = None,
) -> Column:
    """Of ten numbers, seven are updates of `key`, two inserts of `new_key`, one a delete of `key`. `before`: as in
    `row_message`."""
    kind = number % 10
    return (
        F.when(kind < 7, row_message("UPDATE", key, batch, table, before))
        .when(kind < 9, row_message("INSERT", new_key, batch, table))
        .otherwise(row_message("DELETE", key, batch, table, before))
    )


def spread_changes(batch: int, rows: int) -> Column:
    """One change per number in the column `id`, with keys spread over a mirror that began with `rows` rows."""
    number = F.col("id")
    return mixed_changes(number, (number * 7919 + batch * 104_729) % rows, number + rows * batch, batch)


def _watermark(ms: int) -> str:
    tso = (ms << TSO_SHIFT) + 1  # a cut has what is below it
    return (
        f'{{"id":0,"database":"","table":"","pkNames":null,"isDdl":false,"type":"TIDB_WATERMARK","es":{ms},"ts":{ms + 10},'
        f'"sql":"","sqlType":null,"mysqlType":null,"data":null,"old":null,"_tidb":{{"watermarkTs":{tso}}}}}'
    )
