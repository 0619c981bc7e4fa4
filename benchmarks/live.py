"""A pipeline at work: a broker from the released jars, a producer at a steady rate, and `dagster-daemon` with the sensor of
the pipeline `live`, whose runs follow the topic."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

from benchmarks.account_messages import account_row, create_table, current_tso, row_change, watermark
from cdc_pipeline_tests.local_kafka.broker import LocalBroker
from cdc_pipeline_tests.local_kafka.clients import SILENT
from cdc_pipeline_tests.local_kafka.daemon import running_daemon
from cdc_pipeline_tests.local_kafka.definitions import FOLLOW_MINUTES
from cdc_pipeline_tests.local_kafka.feed import create_topics

_TOPIC, _PARTITIONS = "shop", 4


class Live(NamedTuple):
    """A pipeline that follows its topic."""

    folder: Path
    """The pipeline's folder in the lake."""
    daemon: int
    """Process ID of the daemon. The code server and the runs are its descendants."""


@contextmanager
def live_pipeline(
    place: Path, rate: int, keys: int, driver_memory: str, follow_minutes: float = 30.0
) -> Iterator[Live]:
    """Runs broker, producer and daemon in the folder `place` while the block runs.

    `rate`: events a second over this number of primary keys, in four partitions with a watermark each second.
    `follow_minutes`: time after which the sensor replaces a run by the next one.
    """
    environment = {FOLLOW_MINUTES: str(follow_minutes), "CDC_DRIVER_MEMORY": driver_memory}
    with LocalBroker(place / "kafka") as broker:
        create_topics(broker.bootstrap, {_TOPIC: _PARTITIONS})
        done = threading.Event()
        producer = threading.Thread(target=_produce, args=(broker.bootstrap, rate, keys, done))
        with running_daemon(place, broker.bootstrap, environment) as daemon:
            producer.start()
            try:
                yield Live(place / "lake" / "live", daemon.pid)
            finally:
                done.set()
                producer.join()


def wait(seconds: float) -> None:
    """Sleeps, and shows the minutes that are left."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        print(f"  {left:.0f} s left", flush=True)
        time.sleep(min(60.0, left))


def _produce(bootstrap: str, rate: int, keys: int, done: threading.Event) -> None:
    """Produces events at that rate until `done`, in TSO order within each partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all"}, logger=SILENT)
    events, started, sent, watermark_time = _events(keys), time.time(), 0, 0.0
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


def _events(keys: int) -> Iterator[tuple[int, bytes]]:
    """(partition, message) of inserts of missing rows, updates of existing ones, and 7 % deletes."""
    chance, rows = random.Random(7), dict[int, dict[str, str]]()
    while True:
        key, kind = chance.randrange(keys), chance.random()
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
