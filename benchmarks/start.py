"""`make bench-start`: time from a process's launch to the first record in a mirror, and of a run without new records.

Runs `cdc-pipeline run shop`, as `make demo` does, in a fresh process each time: a small capture into an empty lake, then
several times without new records. CPU is that of Python and JVM together.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.output import log
from benchmarks.processes import cpu_seconds, tree
from benchmarks.results import Figure, add_json_option, report

NAME = "shop"
TARGET_FIRST_RECORD = 20.0
TARGET_NO_NEW_RECORDS = 8.0
_ROOT = Path(__file__).parents[1]
_CAPTURE = _ROOT / "data" / "captures" / "shop"
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Run:
    """Seconds from the launch of a run; a moment that did not occur is None."""

    first_record: float | None
    first_cut: float | None
    seconds: float
    cpu_seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--captures", type=Path, default=_CAPTURE, help="folder of captures (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="lakes, and runs without new records into the last lake")
    add_json_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cdc_pipeline-start-") as folder:
        home = Path(folder, "dagster")
        home.mkdir()
        shutil.copy(_ROOT / "dagster.yaml", home)
        lakes = [Path(folder, f"lake-{number}") for number in range(options.rounds)]
        first = [_run("first", options.captures, lake, home) for lake in lakes]
        again = [_run("no new records", options.captures, lakes[-1], home) for _ in lakes]
    records = median(_required(run.first_record) for run in first)
    cuts = median(_required(run.first_cut) for run in first)
    print(f"launch to first record in a mirror {records:6.1f} s")
    print(f"launch to the first cut            {cuts:6.1f} s")
    for name, runs in (("the whole first run", first), ("a run without new records", again)):
        seconds, cpu = median(run.seconds for run in runs), median(run.cpu_seconds for run in runs)
        print(f"{name:<34} {seconds:6.1f} s {cpu:6.1f} CPU s")
    print(f"(medians of {options.rounds})")
    report(figures_of(first, again), options.json)
    return 0


def figures_of(first: Sequence[Run], again: Sequence[Run]) -> list[Figure]:
    """Medians of the first runs, and of those without new records."""
    record = median(_required(run.first_record) for run in first)
    cut = median(_required(run.first_cut) for run in first)
    return [
        Figure("start_first_record_seconds", record, "s", TARGET_FIRST_RECORD),
        Figure("start_first_cut_seconds", cut, "s"),
        Figure("start_first_run_cpu_seconds", median(run.cpu_seconds for run in first), "CPU-s"),
        Figure("start_no_new_records_seconds", median(run.seconds for run in again), "s", TARGET_NO_NEW_RECORDS),
        Figure("start_no_new_records_cpu_seconds", median(run.cpu_seconds for run in again), "CPU-s"),
    ]


def _run(name: str, captures: Path, lake: Path, home: Path) -> Run:
    environment = {**os.environ, "CDC_CAPTURES": str(captures), "CDC_LAKE": str(lake), "DAGSTER_HOME": str(home)}
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "cdc_pipeline.cli.main", "run", NAME],
        env=environment,
        cwd=_ROOT,
        stdout=subprocess.DEVNULL,
    )
    found: dict[str, float] = {}
    spent = 0.0
    milestones: dict[str, Callable[[Path], bool]] = {"record": _has_record, "cut": _has_cut}
    reached_before = {name for name, is_reached in milestones.items() if is_reached(lake / NAME)}
    while process.poll() is None:
        time.sleep(_POLL_SECONDS)
        # the CPU time of the tree is readable only while the process lives, so the last sample counts
        spent = max(spent, cpu_seconds(tree(process.pid)))
        for what, is_reached in milestones.items():
            if what not in found and what not in reached_before and is_reached(lake / NAME):
                found[what] = time.monotonic() - started
    run = Run(found.get("record"), found.get("cut"), time.monotonic() - started, spent)
    if process.returncode != 0:
        raise RuntimeError(f"the run failed with exit status {process.returncode}")
    first = "" if run.first_record is None else f"{run.first_record:.1f} s to the first record, "
    log(f"• {name}: {first}{run.seconds:.1f} s, {run.cpu_seconds:.1f} CPU s")
    return run


def _has_record(home: Path) -> bool:
    """Whether a commit of a mirror adds a data file."""
    return any('"add":' in log.read_text() for log in home.glob("mirror/*/*/_delta_log/*.json"))


def _has_cut(home: Path) -> bool:
    return any(home.glob("consistent_cuts/_delta_log/*.json"))


def _required(seconds: float | None) -> float:
    if seconds is None:
        raise RuntimeError("a first run ended without a record in a mirror")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
