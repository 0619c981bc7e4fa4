"""`make bench-latency`: time from produce to mirror at a steady rate, under Dagster's daemon.

A broker from the released jars, a producer of `--rate` events a second into four partitions with a watermark each second,
and `dagster-daemon` with the sensor of the demo's pipeline. An event's latency is the time from its commit (when it is
produced) to the publication of the first cut whose resolved TSO includes it. Prints median, 95th percentile and worst. The
measurement begins with the second cut, because the first one creates the lake.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Producer

from benchmarks.account_messages import account_row, create_table, current_tso, row_change, watermark
from benchmarks.results import Figure, add_json_option, report
from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.spark.session import SparkLakehouse
from cdc_pipeline_tests.local_kafka.broker import LocalBroker
from cdc_pipeline_tests.local_kafka.clients import SILENT
from cdc_pipeline_tests.local_kafka.definitions import BOOTSTRAP, LAKE
from cdc_pipeline_tests.local_kafka.feed import create_topics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ROOT = Path(__file__).parents[1]
_TOPIC, _PARTITIONS, _KEYS = "shop", 4, 75_000
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
        place = Path(folder)
        home, lake = place / "dagster", place / "lake"
        home.mkdir()
        shutil.copy(_ROOT / "dagster.yaml", home)
        with LocalBroker(place / "kafka") as broker:
            create_topics(broker.bootstrap, {_TOPIC: _PARTITIONS})
            environment = {
                **os.environ,
                "DAGSTER_HOME": str(home),
                BOOTSTRAP: broker.bootstrap,
                LAKE: str(lake),
                "CDC_DRIVER_MEMORY": options.driver_memory,
            }
            done = threading.Event()
            producer = threading.Thread(target=_produce, args=(broker.bootstrap, options.rate, done))
            with _daemon(environment, place / "daemon.log"):
                producer.start()
                try:
                    _wait(options.minutes * 60)
                finally:
                    done.set()
                    producer.join()
        cuts = _read_cuts(lake)
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


class _daemon:  # noqa: N801 - used as a context manager, like a function
    """Runs `dagster-daemon` until the block ends, then kills its process group."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self._environment, self._log = environment, log

    def __enter__(self) -> None:
        command = [
            str(Path(sys.executable).with_name("dagster-daemon")),
            *("run", "-m", "cdc_pipeline_tests.local_kafka.definitions"),
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(30)
        finally:
            os.killpg(self._process.pid, signal.SIGKILL)


def _wait(seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        print(f"  {left:.0f} s left", flush=True)
        time.sleep(min(60.0, left))


def _produce(bootstrap: str, rate: int, done: threading.Event) -> None:
    """Produces events at that rate until `done`, in TSO order within each partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all"}, logger=SILENT)
    events, started, sent, watermark_time = _events(), time.time(), 0, 0.0
    producer.produce(_TOPIC, create_table(current_tso()), partition=0)
    while not done.is_set():
        due = int((time.time() - started) * rate)
        for _ in range(due - sent):
            partition, value = next(events)
            producer.produce(_TOPIC, value, partition=partition)
        sent = due
        if time.time() - watermark_time >= 1:
            watermark_time = time.time()
            for partition in range(_PARTITIONS):
                producer.produce(_TOPIC, watermark(current_tso()), partition=partition)
        producer.poll(0)
        time.sleep(0.005)
    producer.flush(30)


def _events() -> Iterator[tuple[int, bytes]]:
    """(partition, message) of inserts of missing rows, updates of existing ones, and 7 % deletes."""
    chance, rows = random.Random(7), dict[int, dict[str, str]]()
    while True:
        key, kind = chance.randrange(_KEYS), chance.random()
        row = account_row(key, chance.randrange(10**6) / 100)
        before = rows.get(key)
        if before is None:
            rows[key] = row
            yield key % _PARTITIONS, row_change(current_tso(), "INSERT", row)
        elif kind < 0.07:
            del rows[key]
            yield key % _PARTITIONS, row_change(current_tso(), "DELETE", before)
        else:
            rows[key] = row
            yield key % _PARTITIONS, row_change(current_tso(), "UPDATE", row, before)


def _read_cuts(lake: Path) -> list[Cut]:
    spark = SparkLakehouse(driver_memory="1g").session
    rows = spark.read.format("delta").load(str(lake / "live" / "consistent_cuts")).orderBy("cut_id").collect()
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
