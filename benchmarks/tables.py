"""`make bench-tables`: how long a batch over 200 tables takes, over one of as many events of one table.

Both lakes have their tables already, with as many rows together as a batch has events, and have taken one batch of the same
shape. Changes of the batches are spread evenly: seven updates, two inserts, a delete of ten.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from benchmarks.batches import Cost, Lake, create_message, local_spark, mixed_changes, row_message
from benchmarks.told import say
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TARGET = 3.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=200, help="tables that a batch changes")
    parser.add_argument("--events", type=int, default=20_000, help="events of a batch")
    parser.add_argument("--rounds", type=int, default=3, help="batches that are measured, after one that is not")
    parser.add_argument("--merge-threads", type=int, default=2, help="mirrors that are merged side by side")
    options = parser.parse_args()
    spark = local_spark()
    try:
        with tempfile.TemporaryDirectory(prefix="cdc_pipeline-tables-") as folder:
            # the many come first: what a JVM learns of them helps the one table, not the other way round
            many, one = (
                measured(
                    spark, Path(folder, str(tables)), tables, options.events, options.rounds, options.merge_threads
                )
                for tables in (options.tables, 1)
            )
    finally:
        spark.stop()
    print(f"{'tables':>8} {'raw s':>8} {'decode s':>9} {'cut s':>8} {'in all s':>9} {'CPU s':>8}")
    for tables, cost in ((1, one), (options.tables, many)):
        print(f"{tables:>8,} {cost.raw:>8.2f} {cost.decode:>9.2f} {cost.cut:>8.2f} {cost.total:>9.2f} {cost.cpu:>8.1f}")
    print(
        f"{options.tables} tables over one: {many.total / one.total:.2f} in all, {many.cut / one.cut:.2f} of the cut, "
        f"target at most {TARGET:.0f} (batches of {options.events:,} events, median of {options.rounds})"
    )
    return 0


def measured(spark: SparkSession, folder: Path, tables: int, events: int, rounds: int, threads: int) -> Cost:
    """The medians of a batch of `events` changes into so many tables."""
    lake = Lake(spark, folder)
    costs: list[Cost] = []
    for number in range(rounds + 2):
        batch = changes(spark, lake.batch + 1, tables, events) if number else creation(spark, tables, events)
        costs.append(lake.run(batch, events, threads))
        told = f"batch {number + 1}: {costs[-1].total:.1f} s, {costs[-1].cut:.1f} s of them the cut"
        say(f"• {tables:,} tables, {told}; {costs[-1].cpu:.1f} CPU s")
    measured = costs[-rounds:]
    raw, decode, cut, cpu = (
        median(getattr(cost, name) for cost in measured) for name in ("raw", "decode", "cut", "cpu")
    )
    return Cost(raw, decode, cut, cpu)


def creation(spark: SparkSession, tables: int, events: int) -> DataFrame:
    """The tables' CREATE statements, and `events` rows."""
    creates = small_frame(spark, [(create_message(f"t_{number}"),) for number in range(tables)], "value STRING")
    table, key = _place(tables)
    return creates.union(spark.range(events).select(row_message("INSERT", key, 1, table).alias("value")))


def changes(spark: SparkSession, batch: int, tables: int, events: int) -> DataFrame:
    """A batch of `events` changes, spread over the tables."""
    table, key = _place(tables)
    # a batch's inserts are of keys that no batch had; each table has the same mix, and each batch deletes other keys
    message = mixed_changes(key + 3 * batch, key, key + events * batch, batch, table)
    return spark.range(events).select(message.alias("value"))


def _place(tables: int) -> tuple[Column, Column]:
    """The table of a number, and its key there: neighbours are in different tables."""
    number = F.col("id")
    return F.concat(F.lit("t_"), (number % tables).cast("string")), F.expr(f"id DIV {tables}")


if __name__ == "__main__":
    sys.exit(main())
