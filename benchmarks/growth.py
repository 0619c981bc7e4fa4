"""How long a small batch takes into a mirror of N rows, and into one of twice as many.

Each mirror is made by one ingest of N inserts, then small batches of updates, inserts and deletes come, each a cut of its
own; what is timed is the cut, from its plan to its publication. No file of the mirror is rewritten: deletes and updates mark
rows in deletion vectors.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.change_tables import decoded_batches
from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.mirrors.cut import CutMaker
from cdc_pipeline.resources.delta import Commit, append_once
from cdc_pipeline.resources.lake import LakePaths
from cdc_pipeline.resources.spark import SparkLakehouse
from cdc_pipeline.sources.raw_snapshot import raw_app_id
from cdc_pipeline.sources.records import HEADERS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

DEFAULT_ROWS = 500_000
BATCH = 1_000
ROUNDS = 5
_START_MS = 1_795_248_690_000
_TYPES = '{"id":"bigint","v":"varchar(64)","n":"int"}'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=DEFAULT_ROWS, help="rows of the smaller mirror")
    rows = parser.parse_args().rows
    spark = SparkLakehouse(
        master=os.environ.get("CDC_SPARK_MASTER", "local[*]"), driver_memory=os.environ.get("CDC_DRIVER_MEMORY", "4g")
    ).session
    try:
        with tempfile.TemporaryDirectory(prefix="cdc_pipeline-growth-") as folder:
            measured(spark, Path(folder, "warm-up"), rows // 10)
            small, large = (measured(spark, Path(folder, str(size)), size) for size in (rows, 2 * rows))
    finally:
        spark.stop()
    print(f"{'rows':>10} {'cut s':>8}")
    for size, seconds in ((rows, small), (2 * rows, large)):
        print(f"{size:>10,} {seconds:>8.2f}")
    print(f"growth: {large / small:.2f} (a batch of {BATCH} changes, median of {ROUNDS})")
    return 0


def measured(spark: SparkSession, folder: Path, rows: int) -> float:
    """The median seconds of a cut of `BATCH` changes into a mirror of `rows` rows."""
    paths = LakePaths(str(folder), "growth")
    _cut(spark, paths, 1, _inserts(spark, rows))
    seconds = [_cut(spark, paths, batch, _changes(spark, batch, rows)) for batch in range(2, 2 + ROUNDS)]
    print(f"• {rows:,} rows: {', '.join(f'{found:.2f}' for found in seconds)} s", file=sys.stderr, flush=True)
    return median(seconds)


def _cut(spark: SparkSession, paths: LakePaths, batch: int, changes: DataFrame) -> float:
    """Takes the changes in and decodes them; the seconds of the cut that follows."""
    commit_ts = (_START_MS + batch * 1000) << TSO_SHIFT
    records = changes.unionByName(_watermark(spark, batch)).select(
        F.lit(batch).cast("bigint").alias("batch_id"),
        F.lit("growth").alias("topic"),
        F.lit(0).alias("partition"),
        (F.lit(batch * 10_000_000) + F.monotonically_increasing_id()).alias("offset"),
        F.timestamp_millis(F.lit(_START_MS)).alias("timestamp"),
        F.lit(None).cast("binary").alias("key"),
        F.replace("value", F.lit("COMMIT"), F.lit(str(commit_ts))).cast("binary").alias("value"),
        F.lit(None).cast(HEADERS).alias("headers"),
    )
    note = {"batch": batch, "run_id": "growth", "files": [], "offsets": []}
    append_once(records, paths.table("raw_topic_snapshot"), Commit(raw_app_id(paths), batch, note))
    decoded_batches(spark, paths)
    started = time.monotonic()
    report = CutMaker(spark, paths, "growth", "UTC", 2, lambda _: None).brought_up_to_date()
    assert report.published
    assert report.totals.changes >= BATCH
    return time.monotonic() - started


def _inserts(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(rows).select(_message("INSERT", F.col("id"), 1).alias("value"))


def _changes(spark: SparkSession, batch: int, rows: int) -> DataFrame:
    """Seven updates, two inserts, one delete of ten; their keys lie all over the mirror."""
    kind, number = F.col("id") % 10, F.col("id")
    spread = (number * 7919 + batch * 104_729) % rows
    return spark.range(BATCH).select(
        F.when(kind < 7, _message("UPDATE", spread, batch))
        .when(kind < 9, _message("INSERT", number + rows * batch, batch))
        .otherwise(_message("DELETE", spread, batch))
        .alias("value")
    )


def _message(kind: str, key: Column, batch: int) -> Column:
    row = F.format_string('{"id":"%d","v":"value of %d in batch %d","n":"%d"}', key, key, F.lit(batch), F.lit(batch))
    old = F.concat(F.lit("["), row, F.lit("]")) if kind == "UPDATE" else F.lit("null")
    head = (
        f'{{"id":0,"database":"db","table":"t","pkNames":["id"],"isDdl":false,"type":"{kind}",'
        f'"es":{_START_MS + batch * 1000},"ts":{_START_MS + batch * 1000 + 9},"sql":"","sqlType":{{"id":-5,"v":12,"n":4}},'
        f'"mysqlType":{_TYPES},"data":['
    )
    return F.concat(F.lit(head), row, F.lit('],"old":'), old, F.lit(',"_tidb":{"commitTs":COMMIT}}'))


def _watermark(spark: SparkSession, batch: int) -> DataFrame:
    text = (
        f'{{"id":0,"database":"","table":"","pkNames":null,"isDdl":false,"type":"TIDB_WATERMARK",'
        f'"es":{_START_MS + batch * 1000},"ts":{_START_MS + batch * 1000 + 10},"sql":"","sqlType":null,"mysqlType":null,'
        f'"data":null,"old":null,"_tidb":{{"watermarkTs":COMMIT}}}}'
    )
    return spark.range(1).select(F.lit(text).alias("value"))


if __name__ == "__main__":
    sys.exit(main())
