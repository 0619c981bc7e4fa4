"""`make bench-latency`: time from produce to mirror at a steady rate, under Dagster's daemon.

An event's latency is the time from its commit (when it is produced) to the publication of the first cut whose resolved TSO
includes it. Prints median, 95th percentile and worst. The measurement begins with the second cut, because the first one
creates the lake.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.live import live_pipeline, wait
from benchmarks.results import Figure, add_json_option, report
from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.spark.session import SparkLakehouse

_KEYS = 75_000
TARGET_MEDIAN = 8.0
TARGET_95_PERCENT = 15.0
TARGET_WORST = 30.0
_LEAST_CUTS = 3


class Cut(NamedTuple):
    """A published cut. Times are ms since 1970."""

    resolved: int
    published: float
    changes: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=1000, help="events a second")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--driver-memory", default="3g")
    add_json_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cdc_pipeline-latency-") as folder:
        with live_pipeline(Path(folder), options.rate, _KEYS, options.driver_memory) as live:
            wait(options.minutes * 60)
        cuts = _read_cuts(live.folder)
    if len(cuts) < _LEAST_CUTS:
        print(f"found {len(cuts)} cuts, expected at least {_LEAST_CUTS}: increase --minutes", file=sys.stderr)
        return 1
    figures = figures_of(cuts)
    middle, most, worst, interval, *warm = (figure.value for figure in figures)
    print(f"rate               {options.rate} events/s, {sum(cut.changes for cut in cuts)} changes in {len(cuts)} cuts")
    print(f"a cut every        {interval:.1f} s")
    print(f"produce to mirror  median {middle:.1f} s, 95 % {most:.1f} s, worst {worst:.1f} s")
    print("of the later half  median {:.1f} s, 95 % {:.1f} s, worst {:.1f} s".format(*warm))
    report(figures, options.json)
    return 0


def _read_cuts(folder: Path) -> list[Cut]:
    spark = SparkLakehouse(driver_memory="1g").session
    rows = spark.read.format("delta").load(str(folder / "consistent_cuts")).orderBy("cut_id").collect()
    spark.stop()
    return [
        Cut(row["resolved_tso"] >> TSO_SHIFT, row["published_at"].timestamp() * 1000, row["changes"]) for row in rows
    ]


def figures_of(cuts: Sequence[Cut]) -> list[Figure]:
    """Median, 95th percentile and worst latency, the median time between two cuts, and the latencies of the later half of
    the cuts (`warm`: without the JVM's first batches).

    The latencies follow from the cuts alone: at a steady rate every millisecond has the same number of events.
    """
    middle, most, worst = _latencies(cuts)
    warm_middle, warm_most, warm_worst = _latencies(cuts[len(cuts) // 2 - 1 :])
    intervals = [later.published - earlier.published for earlier, later in itertools.pairwise(cuts)]
    return [
        Figure("latency_median_seconds", middle, "s", TARGET_MEDIAN),
        Figure("latency_95_percent_seconds", most, "s", TARGET_95_PERCENT),
        Figure("latency_worst_seconds", worst, "s", TARGET_WORST),
        Figure("latency_cut_interval_seconds", statistics.median(intervals) / 1000, "s"),
        Figure("latency_warm_median_seconds", warm_middle, "s"),
        Figure("latency_warm_95_percent_seconds", warm_most, "s"),
        Figure("latency_warm_worst_seconds", warm_worst, "s"),
    ]


def _latencies(cuts: Sequence[Cut]) -> tuple[float, float, float]:
    """Median, 95th percentile and worst of what the cuts after the first one published, in seconds."""
    resolved = [cut.resolved for cut in cuts]
    found = sorted(
        cuts[bisect.bisect_left(resolved, moment)].published - moment
        for moment in range(resolved[0] + 1, resolved[-1] + 1)
    )
    middle, most = (found[int(len(found) * part)] / 1000 for part in (0.5, 0.95))
    return middle, most, found[-1] / 1000


if __name__ == "__main__":
    sys.exit(main())
