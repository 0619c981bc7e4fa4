"""`make bench-growth`: time of a cut into a mirror of ten million rows, over one into a million rows.

One cut of inserts creates each mirror. Then each batch of updates, inserts and deletes, with keys spread over the mirror, is
one cut. Only the cut is timed, from plan to publication. No file of the mirror is rewritten: deletes and updates mark
rows in deletion vectors.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from benchmarks.batches import BenchmarkLake, local_spark, spread_changes
from benchmarks.output import log
from benchmarks.results import Figure, add_json_option, report

TARGET = 1.5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs=2, default=[1_000_000, 10_000_000], help="rows of the two mirrors")
    parser.add_argument("--batch", type=int, default=10_000, help="changes per batch")
    parser.add_argument("--rounds", type=int, default=5, help="measured batches, after one that is not")
    add_json_option(parser)
    options = parser.parse_args()
    small_rows, large_rows = options.rows
    spark = local_spark()
    try:
        with tempfile.TemporaryDirectory(prefix="cdc_pipeline-growth-") as folder:
            measure(spark, Path(folder, "warm-up"), small_rows // 10, options.batch, 3)
            small, large = (
                measure(spark, Path(folder, name), rows, options.batch, options.rounds)
                for name, rows in (("small", small_rows), ("large", large_rows))
            )
    finally:
        spark.stop()
    print(f"{'rows':>12} {'cut s':>8}")
    for rows, seconds in ((small_rows, small), (large_rows, large)):
        print(f"{rows:>12,} {seconds:>8.2f}")
    print(
        f"growth: {large / small:.2f}, target at most {TARGET} "
        f"(batches of {options.batch:,} changes, median of {options.rounds})"
    )
    report(figures_of(small, large), options.json)
    return 0


def figures_of(small: float, large: float) -> list[Figure]:
    """The figures of a cut into the small and into the large mirror, from their seconds."""
    return [
        Figure("growth_ratio", large / small, "ratio", TARGET),
        Figure("growth_small_seconds", small, "s"),
        Figure("growth_large_seconds", large, "s"),
    ]


def measure(spark: SparkSession, folder: Path, rows: int, batch: int, rounds: int) -> float:
    """Median seconds of a cut of `batch` changes into a mirror of `rows` rows."""
    lake = BenchmarkLake(spark, folder)
    loaded = lake.load(rows)
    log(f"• {rows:,} rows loaded: {loaded:.1f} s")
    costs = [
        lake.run(spark.range(batch).select(spread_changes(lake.batch + 1, rows).alias("value")), batch)
        for _ in range(rounds + 1)
    ]
    cuts = ", ".join(f"{cost.cut:.2f} s ({cost.cpu:.1f} CPU s with raw and decode)" for cost in costs)
    log(f"• {rows:,} rows: {cuts}")
    return median(cost.cut for cost in costs[1:])


if __name__ == "__main__":
    sys.exit(main())
