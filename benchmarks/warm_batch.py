"""`make bench-warm-batch`: cost of a batch of 50 changes in a warm session.

A lake without a broker, with one table of 10,000 rows and a key. The first 30 batches warm up JVM and Python, the next ten
are measured. CPU is that of Python and JVM.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.batches import Cost, local_spark
from benchmarks.days import costs_of, median_of, new_lake
from benchmarks.results import Figure, add_json_option, report

TARGET_SECONDS = 2.0
TARGET_CPU_SECONDS = 2.5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=10, help="measured batches")
    parser.add_argument("--warm-up", type=int, default=30, help="batches before the measurement")
    parser.add_argument("--changes", type=int, default=50, help="changes per batch")
    parser.add_argument("--rows", type=int, default=10_000, help="rows of the mirror before the first batch")
    add_json_option(parser)
    options = parser.parse_args()
    count = options.warm_up + options.batches
    spark = local_spark()
    try:
        with tempfile.TemporaryDirectory(prefix="cdc_pipeline-warm-batch-") as folder:
            lake = new_lake(spark, Path(folder, "lake"), options.rows)
            costs = costs_of(lake, count, options.changes, options.rows)
    finally:
        spark.stop()
    measured = costs[options.warm_up :]
    raw, decode, cut, total, cpu = (median_of(measured, name) for name in ("raw", "decode", "cut", "total", "cpu"))
    print(f"{'raw s':>8} {'decode s':>9} {'cut s':>8} {'total s':>9} {'CPU s':>8}")
    print(f"{raw:>8.2f} {decode:>9.2f} {cut:>8.2f} {total:>9.2f} {cpu:>8.2f}")
    print(f"(batches of {options.changes:,} changes, medians of {options.batches} after {options.warm_up})")
    report(figures_of(measured), options.json)
    return 0


def figures_of(costs: Sequence[Cost]) -> list[Figure]:
    """Medians of the batches."""
    return [
        Figure("warm_batch_seconds", median_of(costs, "total"), "s", TARGET_SECONDS),
        Figure("warm_batch_cpu_seconds", median_of(costs, "cpu"), "CPU-s", TARGET_CPU_SECONDS),
        *(Figure(f"warm_batch_{stage}_seconds", median_of(costs, stage), "s") for stage in ("raw", "decode", "cut")),
    ]


if __name__ == "__main__":
    sys.exit(main())
