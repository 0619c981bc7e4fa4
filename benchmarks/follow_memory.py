"""`make bench-follow-memory`: memory of a run that follows its topic, after many batches over after the first ones.

The run is one of Dagster's daemon. At a low rate a batch follows the other as fast as possible. Prints, at some of the cuts,
the memory of the run's Python process and of its JVM, and the JVM's heap after a full collection.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from deltalake import DeltaTable

from benchmarks.live import Live, live_pipeline
from benchmarks.processes import parent, resident_bytes, tree
from benchmarks.results import Figure, add_json_option, report

TARGET = 1.2
_RATE, _KEYS = 20, 10_000
_LOOKS, _PAUSE_SECONDS = 8, 2.0
_LONGEST_BATCH_SECONDS = 90.0
_FIRST_BATCHES_SECONDS = 600.0


class Moment(NamedTuple):
    """The memory of a run after a number of cuts, in bytes."""

    cuts: int
    python: int
    jvm: int
    live_heap: int
    """The JVM's heap after a full collection."""

    @property
    def total(self) -> int:
        return self.python + self.jvm


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--warm-batches", type=int, default=40, help="batches before the first look")
    parser.add_argument("--looks", type=int, default=5)
    parser.add_argument("--driver-memory", default="1g")
    add_json_option(parser)
    options = parser.parse_args()
    most, least = options.batches, options.warm_batches
    if options.looks < 2 or not 0 < least < most:
        parser.error("expected at least 2 --looks, and more --batches than --warm-batches")
    wanted = [least + (most - least) * look // (options.looks - 1) for look in range(options.looks)]
    print(f"{'cuts':>6} {'Python MB':>10} {'JVM MB':>8} {'live heap MB':>13}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="cdc_pipeline-follow-memory-") as folder,
        live_pipeline(Path(folder), _RATE, _KEYS, options.driver_memory, follow_minutes=100_000) as live,
    ):
        moments = [_measure(live, cuts) for cuts in wanted]
    report(figures_of(moments), options.json)
    return 0


def figures_of(moments: Sequence[Moment]) -> list[Figure]:
    """Memory of the last moment over that of the first, with the parts of both in MB."""
    first, last = moments[0], moments[-1]
    figures = [Figure("follow_memory_ratio", last.total / first.total, "ratio", TARGET)]
    for name, moment in (("first", first), ("last", last)):
        figures += [
            Figure(f"follow_memory_{name}_cuts", moment.cuts, "cuts"),
            Figure(f"follow_memory_{name}_python", moment.python / 1e6, "MB"),
            Figure(f"follow_memory_{name}_jvm", moment.jvm / 1e6, "MB"),
            Figure(f"follow_memory_{name}_live_heap", moment.live_heap / 1e6, "MB"),
        ]
    return figures


def _measure(live: Live, cuts: int) -> Moment:
    """The memory after this number of cuts: the least of several looks, because that of a batch comes and goes."""
    found = _wait_for_cuts(live, cuts)
    python, jvm = _processes(live)
    heap = _live_heap(jvm)
    pythons, jvms = [], []
    for _ in range(_LOOKS):
        pythons.append(resident_bytes([python]))
        jvms.append(resident_bytes([jvm]))
        time.sleep(_PAUSE_SECONDS)
    moment = Moment(found, min(pythons), min(jvms), heap)
    print(f"{found:>6} {moment.python / 1e6:>10.0f} {moment.jvm / 1e6:>8.0f} {heap / 1e6:>13.0f}", flush=True)
    return moment


def _wait_for_cuts(live: Live, cuts: int) -> int:
    """The number of cuts, at least `cuts`. Raises TimeoutError if no cut follows for longer than a batch takes."""
    path = str(live.folder / "consistent_cuts")
    found, due = 0, time.monotonic() + _FIRST_BATCHES_SECONDS
    while found < cuts:
        time.sleep(_PAUSE_SECONDS)
        newest = DeltaTable(path).version() if DeltaTable.is_deltatable(path) else 0
        if newest > found:
            found, due = newest, time.monotonic() + _LONGEST_BATCH_SECONDS
        elif time.monotonic() > due:
            raise TimeoutError(f"found {found} cuts, and no further one for {_LONGEST_BATCH_SECONDS:.0f} s")
    return found


def _processes(live: Live) -> tuple[int, int]:
    """(Python, JVM) of the run: the JVM among the descendants of the daemon, and its parent."""
    for pid in tree(live.daemon):
        if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
            return parent(pid), pid
    raise RuntimeError("found no JVM of a run: read daemon.log in the benchmark's folder")


def _live_heap(jvm: int) -> int:
    """Bytes of live objects: the histogram's total, which the JVM counts after a full collection."""
    jcmd = Path(f"/proc/{jvm}/exe").resolve().with_name("jcmd")
    found = subprocess.run([jcmd, str(jvm), "GC.class_histogram"], capture_output=True, text=True, check=True)
    return int(found.stdout.splitlines()[-1].split()[2])


if __name__ == "__main__":
    sys.exit(main())
