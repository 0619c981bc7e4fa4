"""`make bench-snapshot`: time to load an export of Dumpling and to begin a mirror with it, over Spark appending its lines.

The export has one table of twelve columns (`benchmarks/dumpling_export.py`), 1 GB for five million rows. In each round three
processes follow each other:

1. floor: Spark reads the files as lines of text and appends these to a Delta table.
2. load: the pipeline loads the export into a lake, in as many processes as the machine has cores.
3. adoption: the pipeline adopts the loaded export and makes the cut that begins with it. The lake has a small table, whose
   stream has a batch with a watermark before the export and one after it.

The start of a process, with Spark's session and the two batches, is not in its seconds and CPU-seconds. Its peak memory is
that of Python and JVM together. `--memory-rows` measures 2 and 3 only, for exports of two sizes, and compares the peaks. A
JVM uses its whole heap before it collects, so both have the same, 2 GB if CDC_DRIVER_MEMORY is not set.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import cast

from pyspark.sql import SparkSession

from benchmarks.batches import START_MS, BenchmarkLake, local_spark
from benchmarks.dumpling_export import TABLE, write_export
from benchmarks.output import log
from benchmarks.processes import cpu_seconds, peak_memory, tree
from benchmarks.results import Figure, add_json_option, report
from benchmarks.tables import changes, creation
from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.tables.baselines import baseline_tables
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.operations.adoption import adopt
from cdc_pipeline.mirrors.operations.loading import Loading
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder

LOAD_TARGET, ADOPTION_TARGET, MEMORY_TARGET = 3, 6, 1.2
TSO = (START_MS + 1500) << TSO_SHIFT
"""The export is between the first batch of `BenchmarkLake` and the second."""
_CHANGES = 10


@dataclass(frozen=True)
class Job:
    """What the processes of a round have to do."""

    export: str
    """Path of the export."""
    rows: int
    folder: str
    """Of the tables that they write."""


@dataclass(frozen=True)
class Cost:
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Run:
    """A process. Its start is in `start_seconds` and `peak_bytes` only."""

    seconds: float
    cpu_seconds: float
    start_seconds: float
    peak_bytes: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the export")
    parser.add_argument("--rounds", type=int, default=1, help="rounds of the three processes")
    parser.add_argument(
        "--memory-rows", type=int, nargs=2, metavar="ROWS", help="compare the peaks for two sizes: 5000000 25000000"
    )
    add_json_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cdc_pipeline-snapshot-") as folder:
        if options.memory_rows:
            os.environ.setdefault("CDC_DRIVER_MEMORY", "2g")
            small, large = (
                measure_rounds(Path(folder, str(rows)), rows, 1, ("load", "adoption"))[0]
                for rows in options.memory_rows
            )
            figures = memory_figures_of(small, large)
        else:
            figures = figures_of(measure_rounds(Path(folder), options.rows, options.rounds, tuple(MEASURED)))
    report(figures, options.json)
    return 0


def measure_rounds(folder: Path, rows: int, rounds: int, names: Sequence[str]) -> list[dict[str, Run]]:
    """Process → its run, per round. All rounds read the same export."""
    folder.mkdir(exist_ok=True)
    started = time.monotonic()
    size = write_export(folder / "export", rows, TSO)
    log(f"• {rows:,} rows, {size / 1e6:,.0f} MB of SQL: written in {time.monotonic() - started:.0f} s")
    found = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=folder) as tables:
            job = Job(str(folder / "export"), rows, tables)
            found.append({name: _run_in_process(name, job) for name in names})
    return found


def figures_of(rounds: Sequence[Mapping[str, Run]]) -> list[Figure]:
    """Medians of the rounds."""
    load, adoption = (
        [sum(runs[name].seconds for name in names) / runs["floor"].seconds for runs in rounds]
        for names in (("load",), ("load", "adoption"))
    )
    figures = [
        Figure("snapshot_load_ratio", median(load), "ratio", LOAD_TARGET),
        Figure("snapshot_load_and_adoption_ratio", median(adoption), "ratio", ADOPTION_TARGET),
    ]
    for name in rounds[0]:
        runs = [each[name] for each in rounds]
        figures += [
            Figure(f"snapshot_{name}_seconds", median(run.seconds for run in runs), "s"),
            Figure(f"snapshot_{name}_cpu_seconds", median(run.cpu_seconds for run in runs), "CPU-s"),
            Figure(f"snapshot_{name}_peak", median(run.peak_bytes for run in runs) / 1e6, "MB"),
        ]
    return figures


def memory_figures_of(small: Mapping[str, Run], large: Mapping[str, Run]) -> list[Figure]:
    """The peaks for the large export over those for the small one. Process → its run."""
    figures = []
    for name, run in small.items():
        ratio = large[name].peak_bytes / run.peak_bytes
        figures.append(Figure(f"snapshot_{name}_memory_ratio", ratio, "ratio", MEMORY_TARGET))
        figures.append(Figure(f"snapshot_{name}_small_peak", run.peak_bytes / 1e6, "MB"))
        figures.append(Figure(f"snapshot_{name}_large_peak", large[name].peak_bytes / 1e6, "MB"))
    return figures


# ---- the processes


def _run_in_process(name: str, job: Job) -> Run:
    # without a main module, which the processes of the load would import
    code = "from benchmarks.snapshot import child; child()"
    command = [sys.executable, "-c", code, name, json.dumps(asdict(job))]
    found = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=Path(__file__).parents[1])
    run = Run(**json.loads(found.stdout.splitlines()[-1]))
    log(
        f"• {name}: {run.seconds:.1f} s, {run.cpu_seconds:.1f} CPU s, peak {run.peak_bytes / 1e6:,.0f} MB, "
        f"after a start of {run.start_seconds:.1f} s"
    )
    return run


def child() -> None:
    """One measurement, in its own process."""
    name, job = sys.argv[1:]
    started = time.monotonic()
    with peak_memory() as peak:
        cost = MEASURED[name](Job(**json.loads(job)))
    start = time.monotonic() - started - cost.seconds
    print(json.dumps(asdict(Run(cost.seconds, cost.cpu_seconds, start, peak.bytes))))


def measure_floor(job: Job) -> Cost:
    """Spark appends the lines of the export."""
    spark = local_spark()

    def append(files: str) -> None:
        lines = spark.read.text(f"{job.export}/{files}")
        lines.write.format("delta").mode("append").save(f"{job.folder}/lines")

    append(f"{TABLE}-schema.sql")  # creates the table
    cost = _timed(lambda: append(f"{TABLE}.*.sql"))
    lines = spark.read.format("delta").load(f"{job.folder}/lines").count()
    assert lines > job.rows, f"{lines} lines, expected more than {job.rows}"
    return cost


def measure_load(job: Job) -> Cost:
    """The pipeline loads the export into the lake of the round."""
    cost = _timed(lambda: load(job))
    found = [table.rows for table in baseline_tables(Lake(cast(SparkSession, None), _paths(job)), load(job))]
    assert found == [job.rows], f"{found} rows, expected {job.rows}"
    return cost


def measure_adoption(job: Job) -> Cost:
    """The pipeline begins a mirror with the export, which `measure_load` has loaded."""
    baseline, spark = load(job), local_spark()
    lake = BenchmarkLake(spark, job.folder)
    lake.run(creation(spark, 1, _CHANGES), _CHANGES)
    lake.append_raw(changes(spark, 2, 1, _CHANGES))
    lake.decode()
    rebuilder = Rebuilder(CutMaker(Lake(spark, lake.paths), "benchmark", "UTC", 2, lambda _: None))

    def begin() -> None:
        assert adopt(rebuilder, baseline).rebuilt is None
        lake.make_cut(_CHANGES)

    cost = _timed(begin)
    rows = spark.read.format("delta").load(lake.paths.mirror(TABLE)).count()
    assert rows == job.rows, f"the mirror has {rows} rows, expected {job.rows}"
    return cost


MEASURED: dict[str, Callable[[Job], Cost]] = {
    "floor": measure_floor,
    "load": measure_load,
    "adoption": measure_adoption,
}


def load(job: Job) -> str:
    """Loads what the lake does not have yet. Returns the id of the baseline."""
    return Loading(_paths(job), "benchmark", log).load("dumpling", job.export, lambda _: True)


def _paths(job: Job) -> LakePaths:
    return LakePaths(job.folder, "benchmark")  # as `BenchmarkLake.paths`


def _timed(work: Callable[[], object]) -> Cost:
    """The costs of the work, with those of the processes that it starts and ends."""
    before, started = cpu_seconds(tree(os.getpid())), time.monotonic()
    work()
    seconds = time.monotonic() - started
    return Cost(seconds, cpu_seconds(tree(os.getpid())) - before)


if __name__ == "__main__":
    sys.exit(main())
