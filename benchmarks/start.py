"""`make bench-start`: how long it takes from a process's launch to the first record in a mirror, and what no news cost.

`cdc_pipeline.demo`, as `make demo` runs it, in a fresh process each time: on a small capture into an empty lake, then again
and again on what is there, with nothing new to take in. CPU is that of Python and the JVM together.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.processes import cpu_seconds, tree
from benchmarks.told import say
from cdc_pipeline.demo import NAME

if TYPE_CHECKING:
    from collections.abc import Callable

_ROOT = Path(__file__).parents[1]
_CAPTURE = _ROOT / "data" / "captures" / "shop"
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Run:
    """A run from its launch on; the two moments are None where they did not come."""

    first_record: float | None
    first_cut: float | None
    seconds: float
    cpu_seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--captures", type=Path, default=_CAPTURE, help="a folder of captures (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="lakes, and runs without news into the last one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cdc_pipeline-start-") as folder:
        home = Path(folder, "dagster")
        home.mkdir()
        shutil.copy(_ROOT / "dagster.yaml", home)
        lakes = [Path(folder, f"lake-{number}") for number in range(options.rounds)]
        first = [_run("first", options.captures, lake, home) for lake in lakes]
        again = [_run("no news", options.captures, lakes[-1], home) for _ in lakes]
    records = median(_told(run.first_record) for run in first)
    cuts = median(_told(run.first_cut) for run in first)
    print(f"launch to first record in a mirror {records:6.1f} s")
    print(f"launch to the first cut            {cuts:6.1f} s")
    for name, runs in (("the whole first run", first), ("a run without news", again)):
        seconds, cpu = median(run.seconds for run in runs), median(run.cpu_seconds for run in runs)
        print(f"{name:<34} {seconds:6.1f} s {cpu:6.1f} CPU s")
    print(f"(medians of {options.rounds})")
    return 0


def _run(name: str, captures: Path, lake: Path, home: Path) -> Run:
    environment = {**os.environ, "CDC_CAPTURES": str(captures), "CDC_LAKE": str(lake), "DAGSTER_HOME": str(home)}
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "cdc_pipeline.demo"], env=environment, cwd=_ROOT, stdout=subprocess.DEVNULL
    )
    found: dict[str, float] = {}
    spent = 0.0
    looks: dict[str, Callable[[Path], bool]] = {"record": _has_record, "cut": _has_cut}
    was_there = {name for name, is_there in looks.items() if is_there(lake / NAME)}
    while process.poll() is None:
        time.sleep(_POLL_SECONDS)
        # a process that has ended is in its parent's time, and the whole tree in nobody's: the last look counts
        spent = max(spent, cpu_seconds(tree(process.pid)))
        for what, is_there in looks.items():
            if what not in found and what not in was_there and is_there(lake / NAME):
                found[what] = time.monotonic() - started
    run = Run(found.get("record"), found.get("cut"), time.monotonic() - started, spent)
    if process.returncode != 0:
        raise RuntimeError(f"the run ended with status {process.returncode}")
    told = "" if run.first_record is None else f"{run.first_record:.1f} s to the first record, "
    say(f"• {name}: {told}{run.seconds:.1f} s, {run.cpu_seconds:.1f} CPU s")
    return run


def _has_record(home: Path) -> bool:
    """Whether a commit of a mirror has a file with rows."""
    return any('"add":' in log.read_text() for log in home.glob("mirror/*/*/_delta_log/*.json"))


def _has_cut(home: Path) -> bool:
    return any(home.glob("consistent_cuts/_delta_log/*.json"))


def _told(seconds: float | None) -> float:
    if seconds is None:
        raise RuntimeError("a run ended without a mirror")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
