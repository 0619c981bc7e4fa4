"""`make bench-requests`: requests to S3 of a first run, a new process, a warm batch and a run without new records.

The server is moto, whose log has a line per request. The runs are processes of `cdc-pipeline run`: the shop's capture
without its last 80 records, those records, then nothing new. The warm batches go in turn into a lake on S3 and into a local
one, in one session.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TextIO
from urllib.parse import parse_qs, unquote

from benchmarks.batches import BenchmarkLake, Cost, local_spark
from benchmarks.days import costs_of, median_of, new_lake
from benchmarks.output import log
from benchmarks.results import Figure, add_json_option, report
from cdc_pipeline.lake.delta_log import only_writer
from cdc_pipeline_tests.support.servers.object_store import BUCKET, object_store

TARGETS = {"first_run": 1300, "new_process": 900, "warm_batch": 150, "idle_run": 60}
TARGET_SECONDS_RATIO = 2.0
_ROOT = Path(__file__).parents[1]
_CAPTURE = _ROOT / "data" / "captures" / "shop"
_LAST_RECORDS = 80
"""They change all seven tables."""
_REQUEST = re.compile(r"(GET|HEAD|PUT|POST|DELETE) (/\S*) HTTP/")


@dataclass(frozen=True)
class Measured:
    requests: Mapping[str, Counter[str]]
    """Name in `TARGETS` → request, as of `requests_in` → how often it was sent."""
    s3: Sequence[Cost]
    local: Sequence[Cost]
    """Of the same warm batches."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=11, help="measured warm batches; 0 leaves them out")
    parser.add_argument("--warm-up", type=int, default=20, help="batches before the measurement")
    parser.add_argument("--changes", type=int, default=50, help="changes per batch")
    parser.add_argument("--rows", type=int, default=10_000, help="rows of the mirror before the first batch")
    add_json_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cdc_pipeline-requests-") as name:
        folder = Path(name)
        with object_store(folder) as store, store.log.open(encoding="utf-8", errors="replace") as lines:
            os.environ.update(store.environment)
            requests = _runs(folder / "captures", lines)
            s3: list[Cost] = []
            local: list[Cost] = []
            if options.batches:
                lakes = (f"s3a://{BUCKET}/warm", folder / "lake")
                requests["warm_batch"], s3, local = _warm_batches(lakes, lines, options)
    measured = Measured(requests, s3[-options.batches :], local[-options.batches :])
    print("\n".join(table_lines(requests)))
    report(figures_of(measured), options.json)
    return 0


def figures_of(measured: Measured) -> list[Figure]:
    figures = [
        Figure(f"requests_{name}", found.total(), "requests", TARGETS[name])
        for name, found in measured.requests.items()
    ]
    if measured.s3:
        s3, local = median_of(measured.s3, "total"), median_of(measured.local, "total")
        figures += [
            Figure("requests_warm_seconds_ratio", s3 / local, "ratio", TARGET_SECONDS_RATIO),
            Figure("requests_warm_s3_seconds", s3, "s"),
            Figure("requests_warm_local_seconds", local, "s"),
        ]
    return figures


def table_lines(requests: Mapping[str, Counter[str]]) -> list[str]:
    """A line per kind of request, the most frequent one first, and a column for each measurement."""
    total: Counter[str] = sum(requests.values(), Counter())
    lines = [f"{'':<20}" + "".join(f"{name:>14}" for name in requests)]
    for kind, _ in total.most_common():
        lines.append(f"{kind:<20}" + "".join(f"{found[kind]:>14,}" for found in requests.values()))
    return lines


def requests_in(lines: str) -> Counter[str]:
    """`GET commit`, `LIST log`, … → how often it is in a part of moto's log. A copy is a PUT."""
    found: Counter[str] = Counter()
    for method, url in _REQUEST.findall(lines):
        path, _, query = url.partition("?")
        if "list-type=2" in query:
            method, path = "LIST", parse_qs(query).get("prefix", [""])[0]
        found[f"{method} {_kind(unquote(path))}"] += 1
    return found


def _kind(path: str) -> str:
    """What an object is."""
    folder, _, name = path.rstrip("/").rpartition("/")
    if folder.endswith("_delta_log"):
        if ".crc" in name:  # or the temporary file for one
            return "crc"
        return "checkpoint" if "checkpoint" in name else "commit"
    if name == "_delta_log":
        return "log"
    return "parquet" if ".parquet" in name else "other"


def _runs(captures: Path, lines: TextIO) -> dict[str, Counter[str]]:
    """The requests of three processes."""
    captures.mkdir()
    parts = [gzip.decompress(file.read_bytes()) for file in sorted(_CAPTURE.glob("part-*.jsonl.gz"))]
    records = b"".join(parts).splitlines(keepends=True)
    found = {}
    for name, new in (
        ("first_run", records[:-_LAST_RECORDS]),
        ("new_process", records[-_LAST_RECORDS:]),
        ("idle_run", []),
    ):
        if new:
            (captures / f"{len(list(captures.iterdir()))}.jsonl").write_bytes(b"".join(new))
        lines.read()
        started = time.monotonic()
        command = [sys.executable, "-m", "cdc_pipeline.cli.main", "run"]
        options = ["--captures", str(captures), "--lake", f"s3a://{BUCKET}/shop"]
        subprocess.run([*command, *options], cwd=_ROOT, stdout=subprocess.DEVNULL, check=True)
        found[name] = requests_in(lines.read())
        log(f"• {name}: {found[name].total():,} requests, {time.monotonic() - started:.1f} s")
    return found


def _warm_batches(
    roots: Sequence[str | Path], lines: TextIO, options: argparse.Namespace
) -> tuple[Counter[str], list[Cost], list[Cost]]:
    """The requests of a batch and its upkeep (medians), and the cost of each batch in both lakes."""
    spark = local_spark("s3")
    try:
        lakes: list[BenchmarkLake] = [new_lake(spark, root, options.rows) for root in roots]
        costs: tuple[list[Cost], list[Cost]] = ([], [])
        requests = []
        with contextlib.ExitStack() as contexts:
            for lake in lakes:
                contexts.enter_context(only_writer(lake.paths))  # as in a run that follows
            for _ in range(options.warm_up + options.batches):
                lines.read()
                for lake, found in zip(lakes, costs, strict=True):
                    found += costs_of(lake, 1, options.changes, options.rows)
                requests.append(requests_in(lines.read()))
    finally:
        spark.stop()
    measured = requests[-options.batches :]
    kinds = {kind for found in measured for kind in found}
    return Counter({kind: round(median(found[kind] for found in measured)) for kind in kinds}), *costs


if __name__ == "__main__":
    sys.exit(main())
