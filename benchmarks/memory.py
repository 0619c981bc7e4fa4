"""`make bench-memory`: peak memory of a run for a backlog of five million events, over that for half a million.

Each backlog is a topic of four partitions in a real broker. Each run is a fresh process: the job `NAME_ingest` under
Dagster, with the default batch size. Counts the memory of Python and JVM together, without the broker. A JVM uses its
whole heap before it collects, so both runs have the same heap.
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

import dagster as dg

from benchmarks.batches import local_spark
from benchmarks.messages import OFFSETS_PER_WATERMARK, PARTITIONS
from benchmarks.output import log
from benchmarks.processes import cpu_seconds, peak_memory, tree
from benchmarks.results import Figure, add_json_option, report
from benchmarks.topics import fill_topic
from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import KafkaSource
from cdc_pipeline.spark.session import SparkLakehouse
from cdc_pipeline_tests.local_kafka.broker import LocalBroker

TARGET = 1.2
NAME = "bench"


@dataclass(frozen=True)
class Run:
    """A run of the whole pipeline in a separate process."""

    records: int
    peak_bytes: int
    seconds: float
    cpu_seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, nargs=2, default=[500_000, 5_000_000], help="events of the two backlogs")
    parser.add_argument("--driver-memory", default="2g", help="driver heap of the runs")
    add_json_option(parser)
    options = parser.parse_args()
    least = PARTITIONS * OFFSETS_PER_WATERMARK
    if any(events % PARTITIONS or events < least for events in options.events):
        parser.error(
            f"--events: expected multiples of {PARTITIONS} (partitions) of at least {least:,} (one watermark per partition)"
        )
    with (
        tempfile.TemporaryDirectory(prefix="cdc_pipeline-memory-") as folder,
        LocalBroker(Path(folder, "kafka"), heap="1g") as broker,
    ):
        log(f"producing {' and '.join(f'{events:,}' for events in options.events)} records")
        spark = local_spark()
        for events in options.events:
            fill_topic(spark, broker.bootstrap, _topic(events), PARTITIONS, events)
        spark.stop()
        runs = [
            _run_in_process(broker.bootstrap, events, str(Path(folder, str(events))), options.driver_memory)
            for events in options.events
        ]
    print(f"{'events':>12} {'peak MB':>9} {'s':>8} {'CPU s':>8}")
    for events, run in zip(options.events, runs, strict=True):
        print(f"{events:>12,} {run.peak_bytes / 1e6:>9,.0f} {run.seconds:>8.1f} {run.cpu_seconds:>8.1f}")
    small, large = runs
    print(
        f"peak memory: {large.peak_bytes / small.peak_bytes:.2f}, target at most {TARGET} "
        f"(driver memory {options.driver_memory}, seconds include the start of Spark)"
    )
    report(figures_of(small, large), options.json)
    return 0


def figures_of(small: Run, large: Run) -> list[Figure]:
    """The figures of the runs for the small and for the large backlog."""
    return [
        Figure("memory_ratio", large.peak_bytes / small.peak_bytes, "ratio", TARGET),
        Figure("memory_small_peak", small.peak_bytes / 1e6, "MB"),
        Figure("memory_large_peak", large.peak_bytes / 1e6, "MB"),
    ]


def _run_in_process(bootstrap: str, events: int, lake: str, memory: str) -> Run:
    command = [
        sys.executable,
        "-c",
        "from benchmarks.memory import child; child()",
        bootstrap,
        _topic(events),
        lake,
        memory,
    ]
    found = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=Path(__file__).parents[1])
    run = Run(**json.loads(found.stdout.splitlines()[-1]))
    # plus the CREATE TABLE
    assert run.records == events + 1, f"expected {events + 1} records, found {run.records}"
    log(f"• {events:,} events: {run.peak_bytes / 1e6:,.0f} MB, {run.seconds:.0f} s")
    return run


def child() -> None:
    """One run, in the measured process."""
    bootstrap, topic, lake, memory = sys.argv[1:]
    started = time.monotonic()
    source = KafkaSource(type="kafka", bootstrap_servers=bootstrap, topics=[topic])
    pipeline = CdcPipeline(name=NAME, source=source, lake=lake, spark_resource="spark")
    resources = dg.Definitions(
        resources={"spark": SparkLakehouse(master=os.environ.get("CDC_SPARK_MASTER", "local[*]"), driver_memory=memory)}
    )
    defs = dg.Definitions.merge(pipeline.build_defs(), resources)
    with peak_memory() as peak, dg.DagsterInstance.ephemeral() as instance:
        result = defs.resolve_job_def(f"{NAME}_ingest").execute_in_process(
            instance=instance, run_config={"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
        )
        (raw,) = result.asset_materializations_for_node(f"{NAME}__raw_topic_snapshot")
        spent = cpu_seconds(tree(os.getpid()))
    run = Run(int(str(raw.metadata["records"].value)), peak.bytes, time.monotonic() - started, spent)
    print(json.dumps(asdict(run)))


def _topic(events: int) -> str:
    return f"accounts-{events}"


if __name__ == "__main__":
    sys.exit(main())
