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
import json
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
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from benchmarks.topics import CREATE
from cdc_pipeline.spark.session import SparkLakehouse
from cdc_pipeline_tests.local_kafka.broker import LocalBroker
from cdc_pipeline_tests.local_kafka.clients import SILENT
from cdc_pipeline_tests.local_kafka.definitions import BOOTSTRAP, LAKE
from cdc_pipeline_tests.local_kafka.feed import create_topics

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path(__file__).parents[1]
_TOPIC, _PARTITIONS, _KEYS = "shop", 4, 75_000
_TSO_SHIFT = 18
_TYPES = {"id": ("bigint", -5), "owner": ("varchar", 12), "balance": ("decimal", 3), "updated_at": ("datetime", 93)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=1000, help="events a second")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--driver-memory", default="3g")
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
        return _report(lake, options.rate)


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
    events, started, sent, watermark = _events(), time.time(), 0, 0.0
    producer.produce(_TOPIC, _ddl(_tso()), partition=0)
    while not done.is_set():
        due = int((time.time() - started) * rate)
        for _ in range(due - sent):
            partition, value = next(events)
            producer.produce(_TOPIC, value, partition=partition)
        sent = due
        if time.time() - watermark >= 1:
            watermark = time.time()
            for partition in range(_PARTITIONS):
                producer.produce(_TOPIC, _watermark(_tso()), partition=partition)
        producer.poll(0)
        time.sleep(0.005)
    producer.flush(30)


_COUNTER = iter(range(1 << 62))


def _tso() -> int:
    """A TSO of now, ascending also within a millisecond."""
    return (int(time.time() * 1000) << _TSO_SHIFT) + next(_COUNTER) % (1 << _TSO_SHIFT)


def _events() -> Iterator[tuple[int, bytes]]:
    """(partition, message) of inserts of missing rows, updates of existing ones, and 7 % deletes."""
    chance, rows = random.Random(7), dict[int, dict[str, str]]()
    while True:
        key, kind = chance.randrange(_KEYS), chance.random()
        row = {
            "id": str(key),
            "owner": f"o-{key:06}",
            "balance": f"{chance.randrange(10**6) / 100:.2f}",
            "updated_at": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        }
        before = rows.get(key)
        if before is None:
            rows[key] = row
            yield key % _PARTITIONS, _row("INSERT", row, None)
        elif kind < 0.07:
            del rows[key]
            yield key % _PARTITIONS, _row("DELETE", before, None)
        else:
            rows[key] = row
            yield key % _PARTITIONS, _row("UPDATE", row, before)


def _message(tso: int, **fields: object) -> bytes:
    found = {
        "id": 0,
        "database": "shop",
        "table": "",
        "pkNames": None,
        "isDdl": False,
        "type": "",
        "es": tso >> _TSO_SHIFT,
        "ts": int(time.time() * 1000),
        "sql": "",
        "sqlType": None,
        "mysqlType": None,
        "data": None,
        "old": None,
        **fields,
    }
    return json.dumps(found).encode()


def _row(kind: str, data: dict[str, str], old: dict[str, str] | None) -> bytes:
    tso = _tso()
    return _message(
        tso,
        table="accounts",
        pkNames=["id"],
        type=kind,
        sqlType={name: code for name, (_, code) in _TYPES.items()},
        mysqlType={name: kind for name, (kind, _) in _TYPES.items()},
        old=None if old is None else [old],
        data=[data],
        _tidb={"commitTs": tso},
    )


def _ddl(tso: int) -> bytes:
    return _message(tso, table="accounts", isDdl=True, type="CREATE", sql=CREATE, _tidb={"commitTs": tso})


def _watermark(tso: int) -> bytes:
    return _message(tso, database="", type="TIDB_WATERMARK", _tidb={"watermarkTs": tso})


def _report(lake: Path, rate: int) -> int:
    """Derives the latencies from the cuts alone: at a steady rate every millisecond has the same number of events."""
    spark = SparkLakehouse(driver_memory="1g").session
    rows = spark.read.format("delta").load(str(lake / "live" / "consistent_cuts")).orderBy("cut_id").collect()
    cuts = [(row["resolved_tso"] >> _TSO_SHIFT, row["published_at"].timestamp() * 1000, row["changes"]) for row in rows]
    spark.stop()
    if len(cuts) < 3:
        print(f"found {len(cuts)} cuts, expected at least 3: increase --minutes", file=sys.stderr)
        return 1
    resolved = [found for found, _, _ in cuts]
    latencies = sorted(
        cuts[bisect.bisect_left(resolved, moment)][1] - moment for moment in range(resolved[0] + 1, resolved[-1] + 1)
    )
    seconds = [latencies[int(len(latencies) * part)] / 1000 for part in (0.5, 0.95)] + [latencies[-1] / 1000]
    gaps = [later[1] - earlier[1] for earlier, later in itertools.pairwise(cuts)]
    print(f"rate               {rate} events/s, {sum(changes for _, _, changes in cuts)} changes in {len(cuts)} cuts")
    print(f"a cut every        {statistics.median(gaps) / 1000:.1f} s")
    print("produce to mirror  median {:.1f} s, 95 % {:.1f} s, worst {:.1f} s".format(*seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
