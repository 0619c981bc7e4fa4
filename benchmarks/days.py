"""`make bench-days`: cost of the 40,000th small batch into a lake, over the tenth.

The first and the last batches are real. Between them `benchmarks/aged_lake.py` gives the lake the commits of 40,000
batches, with the upkeep that comes between them. JVM and Python are warmed up in another lake.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.aged_lake import AgedLake
from benchmarks.batches import BenchmarkLake, Cost, local_spark, row_message, spread_changes
from benchmarks.output import log
from benchmarks.results import Figure, add_json_option, report
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.operations.maintenance import keep_small
from cdc_pipeline.mysql.model.table import TableName

TARGET = 1.2
_AROUND = 5
_EARLY = 10
_SETTLING = 5
"""Batches after the ageing that are not measured: Spark reads the new logs."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=40_000)
    parser.add_argument("--changes", type=int, default=50, help="changes per batch")
    parser.add_argument("--rows", type=int, default=10_000, help="rows of the mirror before the first batch")
    parser.add_argument("--warm-up", type=int, default=30, help="batches into another lake, to warm up")
    add_json_option(parser)
    options = parser.parse_args()
    least = _EARLY + 2 * _AROUND + _SETTLING
    if options.batches < least:
        parser.error(f"--batches: expected at least {least}")
    spark = local_spark()
    try:
        with tempfile.TemporaryDirectory(prefix="cdc_pipeline-days-") as folder:
            costs_of(
                new_lake(spark, Path(folder, "warm-up"), options.rows), options.warm_up, options.changes, options.rows
            )
            lake = new_lake(spark, Path(folder, "lake"), options.rows)
            early = costs_of(lake, _EARLY + _AROUND // 2, options.changes, options.rows)[-_AROUND:]
            last = options.batches - _SETTLING - _AROUND
            handle = Lake(spark, lake.paths)
            AgedLake(handle, lake.paths.mirror(TableName("db", "t"))).age(lake.batch + 1, last)
            lake.batch = last
            late = costs_of(lake, _SETTLING + _AROUND, options.changes, options.rows)[-_AROUND:]
    finally:
        spark.stop()
    print(f"{'batch':>6} {'raw s':>8} {'decode s':>9} {'cut s':>8} {'total s':>9} {'CPU s':>8}")
    for number, found in ((_EARLY, early), (options.batches, late)):
        raw, decode, cut, total, cpu = (median_of(found, name) for name in ("raw", "decode", "cut", "total", "cpu"))
        print(f"{number:>6,} {raw:>8.2f} {decode:>9.2f} {cut:>8.2f} {total:>9.2f} {cpu:>8.2f}")
    seconds, cpu = (median_of(late, name) / median_of(early, name) for name in ("total", "cpu"))
    print(
        f"batch {options.batches:,} over batch {_EARLY}: {seconds:.2f} in seconds, {cpu:.2f} in CPU seconds, target at "
        f"most {TARGET} (medians of {_AROUND} batches around batch {_EARLY} and of the last {_AROUND})"
    )
    report(figures_of(early, late), options.json)
    return 0


def figures_of(early: Sequence[Cost], late: Sequence[Cost]) -> list[Figure]:
    """The figures of the batches around the tenth and of the last ones, from their medians."""
    early_seconds, late_seconds = median_of(early, "total"), median_of(late, "total")
    early_cpu, late_cpu = median_of(early, "cpu"), median_of(late, "cpu")
    return [
        Figure("days_seconds_ratio", late_seconds / early_seconds, "ratio", TARGET),
        Figure("days_cpu_ratio", late_cpu / early_cpu, "ratio", TARGET),
        Figure("days_early_seconds", early_seconds, "s"),
        Figure("days_late_seconds", late_seconds, "s"),
        Figure("days_late_cpu_seconds", late_cpu, "CPU-s"),
    ]


def new_lake(spark: SparkSession, folder: Path | str, rows: int) -> BenchmarkLake:
    """A lake whose mirror has this number of rows after its first batch."""
    lake = BenchmarkLake(spark, folder)
    lake.run(spark.range(rows).select(row_message("INSERT", F.col("id"), 1).alias("value")), rows)
    return lake


def costs_of(lake: BenchmarkLake, batches: int, changes: int, rows: int) -> list[Cost]:
    """The cost of each further batch. The log has that of the upkeep after it."""
    costs: list[Cost] = []
    for _ in range(batches):
        values = lake.spark.range(0, changes, 1, 1).select(spread_changes(lake.batch + 1, rows).alias("value"))
        costs.append(lake.run(values, changes))
        started = time.monotonic()
        assert lake.report is not None
        keep_small(Lake(lake.spark, lake.paths), lake.report, log)
        files = sum(1 for path in Path(lake.folder).rglob("_delta_log/*") if path.is_file())
        log(
            f"• batch {lake.batch:,}: {costs[-1].total:.2f} s, {costs[-1].cpu:.1f} CPU s, upkeep "
            f"{time.monotonic() - started:.2f} s; {files:,} log files in local folders"
        )
    return costs


def median_of(costs: Sequence[Cost], name: str) -> float:
    return float(median(getattr(cost, name) for cost in costs))


if __name__ == "__main__":
    sys.exit(main())
