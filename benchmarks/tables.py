"""`make bench-tables`: time of a batch over 200 tables, over a batch of as many events in one table.

Both lakes have their tables, with as many rows in total as a batch has events, and have ingested one batch of the same
shape. Of ten changes seven are updates, two inserts and one a delete, spread evenly over the tables.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.batches import BenchmarkLake, Cost, create_message, local_spark, mixed_changes, row_message
from benchmarks.output import log
from benchmarks.results import Figure, add_json_option, report
from cdc_pipeline.spark.small_frames import small_frame

TARGET = 3.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=200, help="tables changed by a batch")
    parser.add_argument("--events", type=int, default=20_000, help="events per batch")
    parser.add_argument("--rounds", type=int, default=3, help="measured batches, after one that is not")
    parser.add_argument("--merge-threads", type=int, default=2, help="mirrors merged in parallel")
    add_json_option(parser)
    options = parser.parse_args()
    spark = local_spark()
    try:
        with tempfile.TemporaryDirectory(prefix="cdc_pipeline-tables-") as folder:
            # the many tables come first: they warm up the JVM for the one table, but not the reverse
            many, one = (
                measure(spark, Path(folder, str(tables)), tables, options.events, options.rounds, options.merge_threads)
                for tables in (options.tables, 1)
            )
    finally:
        spark.stop()
    print(f"{'tables':>8} {'raw s':>8} {'decode s':>9} {'cut s':>8} {'total s':>9} {'CPU s':>8}")
    for tables, cost in ((1, one), (options.tables, many)):
        print(f"{tables:>8,} {cost.raw:>8.2f} {cost.decode:>9.2f} {cost.cut:>8.2f} {cost.total:>9.2f} {cost.cpu:>8.1f}")
    print(
        f"{options.tables} tables over one: {many.total / one.total:.2f} in total, {many.cut / one.cut:.2f} for the cut, "
        f"target at most {TARGET:.0f} (batches of {options.events:,} events, median of {options.rounds})"
    )
    report(figures_of(one, many), options.json)
    return 0


def figures_of(one: Cost, many: Cost) -> list[Figure]:
    """The figures of a batch over one table and over many."""
    return [
        Figure("tables_ratio", many.total / one.total, "ratio", TARGET),
        Figure("tables_cut_ratio", many.cut / one.cut, "ratio"),
        Figure("tables_one_seconds", one.total, "s"),
        Figure("tables_many_seconds", many.total, "s"),
        Figure("tables_many_cpu_seconds", many.cpu, "CPU-s"),
    ]


def measure(spark: SparkSession, folder: Path, tables: int, events: int, rounds: int, threads: int) -> Cost:
    """Median costs of a batch of `events` changes over `tables` tables."""
    lake = BenchmarkLake(spark, folder)
    costs: list[Cost] = []
    for number in range(rounds + 2):
        batch = changes(spark, lake.batch + 1, tables, events) if number else creation(spark, tables, events)
        costs.append(lake.run(batch, events, threads))
        cost = costs[-1]
        log(f"• {tables:,} tables, batch {number + 1}: {cost.total:.1f} s (cut {cost.cut:.1f} s), {cost.cpu:.1f} CPU s")
    measured = costs[-rounds:]
    raw, decode, cut, cpu = (
        median(getattr(cost, name) for cost in measured) for name in ("raw", "decode", "cut", "cpu")
    )
    return Cost(raw, decode, cut, cpu)


def creation(spark: SparkSession, tables: int, events: int) -> DataFrame:
    """The first batch: the tables' CREATE statements and `events` inserts."""
    creates = small_frame(spark, [(create_message(f"t_{number}"),) for number in range(tables)], "value STRING")
    table, key = _table_and_key(tables)
    return creates.union(spark.range(events).select(row_message("INSERT", key, 1, table).alias("value")))


def changes(spark: SparkSession, batch: int, tables: int, events: int) -> DataFrame:
    """A batch of `events` changes, spread over the tables."""
    table, key = _table_and_key(tables)
    # a batch inserts new keys; each table has the same mix, and each batch deletes other keys
    message = mixed_changes(key + 3 * batch, key, key + events * batch, batch, table)
    return spark.range(events).select(message.alias("value"))


def _table_and_key(tables: int) -> tuple[Column, Column]:
    """The table and key for a number; consecutive numbers are in different tables."""
    number = F.col("id")
    return F.concat(F.lit("t_"), (number % tables).cast("string")), F.expr(f"id DIV {tables}")


if __name__ == "__main__":
    sys.exit(main())
