"""`make bench-peers`: the pipeline, the straight line and Paimon on the same records of one broker, in turn.

The straight line (`benchmarks/straight_line.py`) is the obvious Spark job without promises. Paimon is its action
`kafka_sync_table` on Flink, which keeps one table: no raw records, no change log. Without `mvn` on PATH it is left out.

Two topics of one partition have the same row changes, those of `make bench-end-to-end`. One begins with a CREATE TABLE and
has watermarks. The other has neither, because a watermark stops Paimon. In each round each side starts a process with an
empty lake. For the pipeline and the straight line the first `--warm-up` batches do not count. For Paimon the steady rate
counts; the one with its start is reported too. CPU is that of the side's own processes, without the broker.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

from benchmarks.batches import local_spark
from benchmarks.broker_batches import Stage, run_batch
from benchmarks.output import log
from benchmarks.paimon.sync import find_class_path, steady_marks, sync
from benchmarks.processes import peak_memory
from benchmarks.results import Figure, add_json_option, report
from benchmarks.straight_line import StraightLine
from benchmarks.topics import fill_topic, fill_topic_with_rows
from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import KafkaSource
from cdc_pipeline_tests.local_kafka.broker import LocalBroker

TARGET = 0.85
_TOPIC, _ROWS_TOPIC = "accounts", "accounts-rows"
_T = TypeVar("_T")


@dataclass(frozen=True)
class Job:
    """What each side has to do."""

    bootstrap: str
    batch: int
    """Records of a batch."""
    warm_up: int
    """Batches that do not count."""
    ends: range
    """The number of records, after the CREATE TABLE, at the end of each batch."""


@dataclass(frozen=True)
class Run:
    """One round of a side. A rate is (events per CPU-second, events per second)."""

    rate: tuple[float, float]
    """When warm."""
    peak: int
    """Resident memory in bytes."""
    disk: Mapping[str, float]
    """`disk` and `disk_TABLE` → bytes per event: of all files, with replaced ones and logs, and of single tables."""
    whole: tuple[float, float] | None = None
    """With the start of the process; only of Paimon."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=1_200_000, help="measured events per round")
    parser.add_argument("--batch", type=int, default=300_000, help="records per batch")
    parser.add_argument("--warm-up", type=int, default=2, help="batches before the measurement")
    add_json_option(parser)
    options = parser.parse_args()
    if options.events < options.batch:
        parser.error("--events: expected at least one batch (--batch)")
    rounds: list[dict[str, Run]] = []
    with tempfile.TemporaryDirectory(prefix="cdc_pipeline-peers-") as temporary:
        folder = Path(temporary)
        class_path = find_class_path(folder)
        if class_path is None:
            log("Paimon is left out: mvn is not on PATH")
        with LocalBroker(folder / "kafka", heap="1g") as broker:
            count = options.warm_up * options.batch + options.events
            ends = range(options.batch, count + 1, options.batch)
            job = Job(broker.bootstrap, options.batch, options.warm_up, ends)
            log(f"producing 2 × {ends[-1]:,} records")
            _in_process(fill_topics, job)
            for number in range(options.rounds):
                log(f"• round {number + 1}")
                rounds.append(measure_round(job, folder / f"round-{number + 1}", class_path))
    report(figures_of(rounds), options.json)
    return 0


def fill_topics(job: Job) -> None:
    spark = local_spark()
    fill_topic(spark, job.bootstrap, _TOPIC, 1, job.ends[-1])
    fill_topic_with_rows(spark, job.bootstrap, _ROWS_TOPIC, job.ends[-1])
    spark.stop()


def measure_round(job: Job, folder: Path, class_path: str | None) -> dict[str, Run]:
    """Runs each side, with its lake in `folder`. Without Paimon if it has no class path or fails."""
    folder.mkdir()
    runs = {"line": _in_process(measure_line, job, folder / "line")}
    if class_path is not None:
        try:
            runs["paimon"] = measure_paimon(class_path, job, folder / "paimon")
        except RuntimeError as error:
            log(f"Paimon is left out of this round: {error}")
    runs["ours"] = _in_process(measure_ours, job, folder / "ours")
    for side, run in runs.items():
        log("• {}: {:,.0f} events per CPU-second, {:,.0f} per second".format(side, *run.rate))
    return runs


def measure_ours(job: Job, folder: Path) -> Run:
    """Runs the pipeline's stages on the topic, without Dagster."""
    spark = local_spark()
    source = KafkaSource(
        type="kafka", bootstrap_servers=job.bootstrap, topics=[_TOPIC], max_records_per_batch=job.batch + 1
    )
    pipeline = CdcPipeline(name="bench", source=source, lake=str(folder)).pipeline
    with peak_memory() as peak:
        batches = [run_batch(spark, pipeline, None, f"run-{end}", {_TOPIC: {"0": end + 1}}) for end in job.ends]
    spark.stop()
    tables = {"raw": "raw_topic_snapshot", "change_log": "change_log", "mirror": "mirror"}
    disk = _disk(folder, {name: f"bench/{table}" for name, table in tables.items()}, job.ends[-1])
    return Run(_warm_rate(job, [batch.stages for batch in batches]), peak.bytes, disk)


def measure_line(job: Job, folder: Path) -> Run:
    """Runs the straight line on the topic."""
    spark = local_spark()
    line = StraightLine(spark, job.bootstrap, _TOPIC, folder)
    line.create()
    with peak_memory() as peak:
        # the CREATE TABLE has offset 0 and belongs to the first batch
        starts = (0, *(end + 1 for end in job.ends))
        batches = [line.run_batch(number, starts[number], end + 1) for number, end in enumerate(job.ends)]
    spark.stop()
    disk = _disk(folder, {name: name for name in ("raw", "change_log", "mirror")}, job.ends[-1])
    return Run(_warm_rate(job, batches), peak.bytes, disk)


def measure_paimon(class_path: str, job: Job, folder: Path) -> Run:
    """Runs Paimon on the topic without watermarks. Raises RuntimeError if it fails or its steady rate is unknown."""
    marks, peak = sync(class_path, job.bootstrap, _ROWS_TOPIC, folder)
    steady, whole = (
        (events / (last.cpu_seconds - first.cpu_seconds), events / (last.seconds - first.seconds))
        for first, last in (steady_marks(marks), (marks[0], marks[-1]))
        for events in (last.offset - first.offset,)
    )
    return Run(steady, peak, _disk(folder, {}, marks[-1].offset), whole)


def _warm_rate(job: Job, batches: Sequence[Sequence[Stage]]) -> tuple[float, float]:
    stages = [stage for batch in batches[job.warm_up :] for stage in batch]
    events = (len(batches) - job.warm_up) * job.batch
    return events / sum(stage.cpu_seconds for stage in stages), events / sum(stage.seconds for stage in stages)


def _disk(folder: Path, tables: Mapping[str, str], events: int) -> dict[str, float]:
    """As `Run.disk`. `tables`: name → path in the folder."""
    folders = {"disk": folder, **{f"disk_{name}": folder / path for name, path in tables.items()}}
    return {
        name: sum(file.stat().st_size for file in place.rglob("*") if file.is_file()) / events
        for name, place in folders.items()
    }


def _in_process(function: Callable[..., _T], *arguments: object) -> _T:
    """Calls the function in a new process, whose JVM ends with it."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def figures_of(rounds: Sequence[Mapping[str, Run]]) -> list[Figure]:
    """Medians of the rounds: of the ratios within a round, and of each side. A round is side → run."""
    figures = []
    for peer, target in (("line", TARGET), ("paimon", None)):
        ratios = [runs["ours"].rate[0] / runs[peer].rate[0] for runs in rounds if peer in runs]
        if ratios:
            figures.append(Figure(f"peers_ours_over_{peer}", median(ratios), "ratio", target, at_least=True))
    for side in ("ours", "line", "paimon"):
        runs = [runs[side] for runs in rounds if side in runs]
        figures += _figures_of_side(f"peers_{side}", runs) if runs else []
    return figures


def _figures_of_side(prefix: str, runs: Sequence[Run]) -> list[Figure]:
    figures = []
    rates = {prefix: [run.rate for run in runs], f"{prefix}_whole": [run.whole for run in runs if run.whole]}
    for name, found in rates.items():
        if found:
            per_cpu_second, per_second = (median(values) for values in zip(*found, strict=True))
            figures.append(Figure(f"{name}_per_cpu_second", per_cpu_second, "events/CPU-s"))
            figures.append(Figure(f"{name}_per_second", per_second, "events/s"))
    figures.append(Figure(f"{prefix}_peak_memory", median(run.peak for run in runs) / 1e9, "GB"))
    disk = {name: median(run.disk[name] for run in runs) for name in runs[0].disk}
    return figures + [Figure(f"{prefix}_{name}_per_event", size, "B") for name, size in disk.items()]


if __name__ == "__main__":
    sys.exit(main())
