"""`make bench-days`: cost of the thousandth small batch into a lake, over the tenth.

Ten days of a hundred batches, in which logs, checkpoints and small files accumulate. After each day the lake is maintained
with the defaults of `NAME_maintain`, so the last batches follow a whole day of small files. JVM and Python are warmed up
in another lake.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from benchmarks.batches import BenchmarkLake, Cost, local_spark, row_message, spread_changes
from benchmarks.output import log
from benchmarks.results import Figure, add_json_option, report
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.operations.maintenance import Maintenance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

TARGET = 1.2
_AROUND = 5
_EARLY = 10
_LOG_EVERY = 50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--changes", type=int, default=50, help="changes per batch")
    parser.add_argument("--rows", type=int, default=10_000, help="rows of the mirror before the first batch")
    parser.add_argument("--a-day", type=int, default=100, help="batches between two maintenances; 0: none")
    parser.add_argument("--warm-up", type=int, default=30, help="batches into another lake, to warm up")
    add_json_option(parser)
    options = parser.parse_args()
    if options.batches < _EARLY + _AROUND:
        parser.error(f"--batches: expected at least {_EARLY + _AROUND}")
    spark = local_spark()
    try:
        with tempfile.TemporaryDirectory(prefix="cdc_pipeline-days-") as folder:
            costs_of(spark, Path(folder, "warm-up"), options.warm_up, options.changes, options.rows, 0)
            costs = costs_of(spark, Path(folder, "lake"), options.batches, options.changes, options.rows, options.a_day)
    finally:
        spark.stop()
    early, late = costs[_EARLY - 1 - _AROUND // 2 :][:_AROUND], costs[-_AROUND:]
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


def costs_of(spark: SparkSession, folder: Path, batches: int, changes: int, rows: int, a_day: int) -> list[Cost]:
    """The cost of each batch."""
    lake = BenchmarkLake(spark, folder)
    lake.run(spark.range(rows).select(row_message("INSERT", F.col("id"), 1).alias("value")), rows)
    costs: list[Cost] = []
    for number in range(1, batches + 1):
        values = spark.range(0, changes, 1, 1).select(spread_changes(lake.batch + 1, rows).alias("value"))
        costs.append(lake.run(values, changes))
        if number % _LOG_EVERY == 0 or number == batches:
            recent, files = costs[-_AROUND:], sum(path.is_file() for path in folder.rglob("*"))
            seconds, cpu = median_of(recent, "total"), median_of(recent, "cpu")
            log(f"• batch {number:,}: {seconds:.2f} s, {cpu:.1f} CPU s; {files:,} files")
        if a_day and number % a_day == 0 and number < batches:
            upkeep = Maintenance().run(Lake(spark, lake.paths), lambda _: None)
            log(f"• maintenance after batch {number:,}: {sum(table.seconds for table in upkeep):.1f} s")
    return costs


def median_of(costs: Sequence[Cost], name: str) -> float:
    return float(median(getattr(cost, name) for cost in costs))


if __name__ == "__main__":
    sys.exit(main())
