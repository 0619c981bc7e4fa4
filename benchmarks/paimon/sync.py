"""Paimon's action `kafka_sync_table` in one JVM with a local Flink cluster, started by Java's source launcher.

Parallelism 2, a checkpoint every 3 s and one bucket suit two cores and a topic of one partition. The heap may take 4 GB,
as Spark's.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from benchmarks.output import log
from benchmarks.processes import cpu_seconds, resident_bytes, tree
from cdc_pipeline.spark.java import require_java

_HERE = Path(__file__).parent
_OPENED = (
    *("java.lang", "java.lang.reflect", "java.net", "java.nio", "java.text", "java.time", "java.util"),
    *("java.util.concurrent", "sun.nio.ch"),
)
_JVM_OPTIONS = (
    *("-Xmx4g", "-Dparallelism=2", "-Dcheckpoint.interval=3 s", f"-Dlog4j.configuration=file:{_HERE}/log4j.properties"),
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-exports=java.base/sun.net.util=ALL-UNNAMED",
)
_LIMIT_SECONDS = 900.0


@dataclass(frozen=True)
class Mark:
    """When an offset was first seen as committed. Paimon commits offsets with its checkpoints."""

    seconds: float
    """Since the launch."""
    cpu_seconds: float
    offset: int


def find_class_path(folder: Path) -> str | None:
    """The class path of pom.xml, from Maven, which fetches missing jars. None without `mvn` on PATH.

    `folder`: for Maven's output file.
    """
    maven = shutil.which("mvn")
    if maven is None:
        return None
    file = folder / "class_path"
    goal = ("dependency:build-classpath", f"-Dmdep.outputFile={file}")
    # Maven writes color codes to stdout, where the figures go
    subprocess.run([maven, "--quiet", "-f", str(_HERE / "pom.xml"), *goal], check=True, stdout=sys.stderr)
    return file.read_text(encoding="utf-8").strip()


def sync(class_path: str, bootstrap: str, topic: str, folder: Path) -> tuple[list[Mark], int]:
    """Writes the whole topic into a table of the warehouse `folder`. Returns its marks and its peak memory in bytes.

    Raises RuntimeError with the end of the log if Paimon ends by itself, or is not done in 15 minutes.
    """
    partition = TopicPartition(topic, 0)
    marks, peak = [Mark(0, 0, 0)], 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": str(folder)})
    try:
        end = consumer.get_watermark_offsets(partition)[1]
        started = time.monotonic()
        with _running(_command(class_path, bootstrap, topic, folder), folder.with_suffix(".log")) as process:
            while marks[-1].offset < end:
                time.sleep(0.2)
                pids, seconds = tree(process.pid), time.monotonic() - started
                peak = max(peak, resident_bytes(pids))
                cpu, offset = cpu_seconds(pids), consumer.committed([partition], timeout=10)[0].offset
                if offset > marks[-1].offset:
                    marks.append(Mark(seconds, cpu, offset))
                    log(f"• Paimon: {offset:,} records after {seconds:.1f} s, {cpu:.1f} CPU s")
                if process.poll() is not None or seconds > _LIMIT_SECONDS:
                    output = folder.with_suffix(".log").read_text(encoding="utf-8", errors="replace")
                    raise RuntimeError(f"it committed {marks[-1].offset} of {end} records: {output[-2000:]}")
    finally:
        consumer.close()
    return marks, peak


def steady_marks(marks: Sequence[Mark]) -> tuple[Mark, Mark]:
    """The first mark after a third of the records, and the last one before the end. Raises RuntimeError without both.

    The mark of the end is left out, because Paimon waits there for its next checkpoint.
    """
    between = [mark for mark in marks[:-1] if mark.offset >= marks[-1].offset / 3]
    if len(between) < 2:
        raise RuntimeError("it committed too few offsets for a steady rate: expected more --events")
    return between[0], between[-1]


def _command(class_path: str, bootstrap: str, topic: str, folder: Path) -> list[str]:
    source = {
        "properties.bootstrap.servers": bootstrap,
        "properties.group.id": str(folder),
        "topic": topic,
        "scan.startup.mode": "earliest-offset",
        "value.format": "canal-json",
    }
    table = {"bucket": "1", "sink.parallelism": "1"}
    return [
        *(str(require_java().path), *_JVM_OPTIONS, "-cp", class_path, str(_HERE / "SyncTopic.java")),
        *("kafka_sync_table", "--warehouse", f"file://{folder}"),
        *("--database", "shop", "--table", "accounts", "--primary_keys", "id"),
        *(part for name, value in source.items() for part in ("--kafka_conf", f"{name}={value}")),
        *(part for name, value in table.items() for part in ("--table_conf", f"{name}={value}")),
    ]


@contextmanager
def _running(command: Sequence[str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is stopped at the end of the block."""
    with output.open("wb") as stream:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
