"""`make bench-readers`: time to read a mirror after 1,000 small cuts, over a fresh table of the same rows.

Each cut has 50 changes, and the upkeep that follows a cut follows it here too. The three mirrors are written in three ways:
one of 10,000 rows is rewritten by the driver, one of 200,000 by MERGE, and one of two million, which is above 4 MiB, gets
deletion vectors. The fresh table has the mirror's properties and one file per 128 MB. Both are read in turn in a warm
session: all rows (a hash over all columns), and one row by its key. `first_read` includes reading the table's log, which
Spark otherwise caches until the next cut. DuckDB reads the log with every query.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import duckdb
import duckdb_extension_delta  # type: ignore[import-untyped]
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.batches import BenchmarkLake, local_spark
from benchmarks.days import costs_of, new_lake
from benchmarks.output import log
from benchmarks.results import Figure, add_json_option, report
from cdc_pipeline.lake.delta import forget_cached_log
from cdc_pipeline.mysql.model.table import TableName

TARGET = 1.3
_WITH_TARGET = ("read", "lookup")
_WARM_UP = 5
"""Reads of each table that are not measured."""
_FILE_BYTES = 128 * 2**20

Read = Callable[[str, int], object]
"""Reads the table at a path, and may look for the key. Returns what it has found."""


@dataclass(frozen=True)
class Pair:
    """Median seconds of a read."""

    mirror: float
    fresh: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=1_000, help="cuts into each mirror")
    parser.add_argument("--changes", type=int, default=50, help="changes per cut")
    parser.add_argument(
        "--rows",
        type=int,
        nargs="+",
        default=[10_000, 200_000, 2_000_000],
        help="rows of the mirrors before the first cut",
    )
    parser.add_argument("--reads", type=int, default=15, help="measured reads of each kind")
    add_json_option(parser)
    options = parser.parse_args()
    figures: list[Figure] = []
    spark = local_spark()
    try:
        with tempfile.TemporaryDirectory(prefix="cdc_pipeline-readers-") as folder, _duckdb() as duck:
            for rows in options.rows:
                lake = new_lake(spark, Path(folder, f"lake-{rows}"), rows)
                costs_of(lake, options.cuts, options.changes, rows)
                pairs = measure(lake, duck, Path(folder, f"fresh-{rows}"), options.reads)
                figures += figures_of(rows, pairs)
    finally:
        spark.stop()
    report(figures, options.json)
    return 0


def figures_of(rows: int, pairs: Mapping[str, Pair]) -> list[Figure]:
    """The figures of the mirror that began with this number of rows. `pairs`: read → its seconds."""
    figures = []
    for name, pair in pairs.items():
        target = TARGET if name in _WITH_TARGET else None
        figures.append(Figure(f"readers_{rows}_{name}_ratio", pair.mirror / pair.fresh, "ratio", target))
        figures.append(Figure(f"readers_{rows}_{name}_mirror_seconds", pair.mirror, "s"))
        figures.append(Figure(f"readers_{rows}_{name}_fresh_seconds", pair.fresh, "s"))
    return figures


def measure(lake: BenchmarkLake, duck: duckdb.DuckDBPyConnection, fresh: Path, reads: int) -> dict[str, Pair]:
    """Seconds of each kind of read of the mirror, and of a table that this writes to `fresh`."""
    spark, mirror = lake.spark, lake.paths.mirror(TableName("db", "t"))
    detail = DeltaTable.forPath(spark, mirror).detail().first()
    assert detail is not None
    rows = spark.read.format("delta").load(mirror)
    properties = {name: value for name, value in detail["properties"].items() if name.startswith("delta.")}
    files = math.ceil(detail["sizeInBytes"] / _FILE_BYTES)
    rows.coalesce(files).write.format("delta").options(**properties).save(str(fresh))
    log(f"• the mirror: {rows.count():,} rows, {detail['numFiles']} files, {detail['sizeInBytes']:,} bytes")
    keys = [row["id"] for row in rows.select("id").orderBy(F.xxhash64("id")).limit(reads + _WARM_UP).collect()]
    kinds: dict[str, Read] = {
        "read": partial(_spark_read, spark),
        "lookup": partial(_spark_lookup, spark),
        "first_read": partial(_spark_first_read, spark),
        "duckdb_read": partial(_duckdb_read, duck),
        "duckdb_lookup": partial(_duckdb_lookup, duck),
    }
    return {name: _times(read, mirror, str(fresh), keys) for name, read in kinds.items()}


def _times(read: Read, mirror: str, fresh: str, keys: list[int]) -> Pair:
    """Reads both tables in turn, once per key. Both reads must find the same."""
    seconds: dict[str, list[float]] = {mirror: [], fresh: []}
    for number, key in enumerate(keys):
        found = {}
        # the second read of a key may profit from the first
        for path in (mirror, fresh) if number % 2 else (fresh, mirror):
            started = time.monotonic()
            found[path] = read(path, key)
            seconds[path].append(time.monotonic() - started)
        assert found[mirror] == found[fresh], f"key {key}: the mirror has {found[mirror]}, not {found[fresh]}"
    return Pair(median(seconds[mirror][_WARM_UP:]), median(seconds[fresh][_WARM_UP:]))


def _spark_read(spark: SparkSession, path: str, _key: int) -> object:
    rows = spark.read.format("delta").load(path)
    return rows.agg(F.bit_xor(F.xxhash64(*rows.columns))).first()


def _spark_lookup(spark: SparkSession, path: str, key: int) -> object:
    return spark.read.format("delta").load(path).where(F.col("id") == key).collect()


def _spark_first_read(spark: SparkSession, path: str, key: int) -> object:
    forget_cached_log(spark, path)
    return _spark_read(spark, path, key)


def _duckdb_read(duck: duckdb.DuckDBPyConnection, path: str, _key: int) -> object:
    return duck.execute("SELECT bit_xor(hash(t)) FROM delta_scan(?) t", [path]).fetchall()


def _duckdb_lookup(duck: duckdb.DuckDBPyConnection, path: str, key: int) -> object:
    return duck.execute("SELECT * FROM delta_scan(?) WHERE id = ?", [path, key]).fetchall()


@contextmanager
def _duckdb() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the extension of the package `duckdb-extension-delta`."""
    (extension,) = (Path(duckdb_extension_delta.__file__).parent / "extensions").rglob("*.duckdb_extension")
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        connection.load_extension(str(extension))
        yield connection


if __name__ == "__main__":
    sys.exit(main())
