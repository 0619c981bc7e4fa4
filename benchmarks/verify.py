"""`make bench-verify`: time and memory to verify the changes of one table by their before images.

A cut loads the table, and a second one applies the changes: of ten, seven are updates, two inserts, one a delete, each of
another row and spread over the table. Then a process of its own verifies the second cut: the changes find the rows of the
mirror at the first one, and each must prove its row. The start of this process is in its peak memory only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.batches import ROWS_OF_A_BATCH, BenchmarkLake, create_message, local_spark, mixed_changes
from benchmarks.output import log
from benchmarks.processes import cpu_seconds, peak_memory, tree
from benchmarks.results import Figure, add_json_option, report
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.tables.verifications import Verified, append_verified
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.operations.verification import Verifier
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings

TARGET_SECONDS, TARGET_GB = 60, 2


@dataclass(frozen=True)
class Run:
    """The process that verifies."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the table before the changes")
    parser.add_argument("--changes", type=int, default=1_000_000, help="changes, at most as many as rows")
    parser.add_argument("--driver-memory", default="1g", help="driver heap of the process that verifies")
    add_json_option(parser)
    options = parser.parse_args()
    if not 0 < options.changes <= options.rows:
        parser.error(f"--changes: expected 1 to {options.rows:,}, the rows")
    with tempfile.TemporaryDirectory(prefix="cdc_pipeline-verify-") as folder:
        spark = local_spark()
        try:
            prepare(spark, folder, options.rows, options.changes)
        finally:
            spark.stop()
        run = _run_in_process(folder, options.changes, options.driver_memory)
    report(figures_of(run), options.json)
    return 0


def figures_of(run: Run) -> list[Figure]:
    return [
        Figure("verify_seconds", run.seconds, "s", TARGET_SECONDS),
        Figure("verify_peak_memory", run.peak_bytes / 1e9, "GB", TARGET_GB),
        Figure("verify_cpu_seconds", run.cpu_seconds, "CPU-s"),
    ]


def prepare(spark: SparkSession, folder: str, rows: int, changes: int) -> None:
    """Makes a lake with two cuts: the rows, as verified, and the changes."""
    lake = BenchmarkLake(spark, folder)
    lake.append_raw(spark.range(1).select(F.lit(create_message("t")).alias("value")))
    first = lake.batch + 1
    log(f"• {rows:,} rows loaded: {lake.load(rows):.1f} s")
    append_verified(Lake(spark, lake.paths), 1, "benchmark", ())
    number = F.col("id")
    key = number * (rows // changes)
    writer = F.floor(key / ROWS_OF_A_BATCH) + first
    sent = mixed_changes(number, key, number + rows, lake.batch + 1, before=writer)
    cost = lake.run(spark.range(changes).select(sent.alias("value")), changes)
    log(f"• {changes:,} changes: {cost.total:.1f} s")


def verify(spark: SparkSession, folder: str) -> tuple[Verified, ...]:
    """Verifies the second cut of `prepare`."""
    lake = Lake(spark, BenchmarkLake(spark, folder).paths)
    assert published_cut(lake).cut_id == 2
    return Verifier(lake, CutSettings("UTC"), log).verify("benchmark")


def _run_in_process(folder: str, changes: int, memory: str) -> Run:
    command = [sys.executable, "-c", "from benchmarks.verify import child; child()", folder, str(changes)]
    environment = {**os.environ, "CDC_DRIVER_MEMORY": memory}
    found = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=Path(__file__).parents[1], env=environment)
    return Run(**json.loads(found.stdout.splitlines()[-1]))


def child() -> None:
    """The measured process."""
    folder, changes = sys.argv[1:]
    with peak_memory() as peak:
        spark = local_spark()
        before, started = cpu_seconds(tree(os.getpid())), time.monotonic()
        found = verify(spark, folder)
        seconds = time.monotonic() - started
        spent = cpu_seconds(tree(os.getpid())) - before
    proved = [(one.changes, one.proved, one.contradicted) for one in found]
    assert proved == [(int(changes), int(changes), 0)], (
        f"{proved} changes, proved, contradicted; expected {changes} proved"
    )
    print(json.dumps(asdict(Run(seconds, spent, peak.bytes))))


if __name__ == "__main__":
    sys.exit(main())
