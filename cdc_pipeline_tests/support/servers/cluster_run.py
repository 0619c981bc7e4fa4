"""A driver process (`python -m`) that runs the pipeline on a Spark cluster and prints the results as JSON.

It is a process because the test's own already has a local session, and a process can have only one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from cdc_pipeline.lake.paths import LakePaths, stores_of
from cdc_pipeline.mirrors.operations.mirror_replacer import content_hash
from cdc_pipeline.mirrors.settings.selection import TableSelection
from cdc_pipeline.spark.session import SparkLakehouse
from cdc_pipeline_tests.support.lakes.pipelines import ingest

# few, because each table adds to the time of a cut: the second slice changes two of them and inserts the first rows of one
TABLES = ("shop.customers", "shop.products", "shop.orders")


@dataclass(frozen=True)
class Executor:
    """An executor of Spark's status store, which includes the driver."""

    id: str
    address: str
    completed_tasks: int


def main() -> int:
    given = json.loads(sys.argv[1])
    spark = SparkLakehouse(
        master=given["master"],
        driver_memory="1g",
        shuffle_partitions=2,  # one task per worker
        stores=list(stores_of(given["lake"])),
        settings=given["settings"],
    ).session
    hashes = hashes_of_slices(spark, LakePaths(given["lake"], "shop"), [Path(place) for place in given["slices"]])
    executors = [asdict(executor) for executor in _executors(spark)]
    print(json.dumps({"hashes": hashes, "executors": executors, "registered": _registered(spark)}))
    spark.stop()
    return 0


def hashes_of_slices(spark: SparkSession, paths: LakePaths, slices: Sequence[Path]) -> dict[str, str]:
    """Ingests each folder in a run, and returns the content hash of the change log and of each mirror."""
    for number, folder in enumerate(slices):
        report = ingest(spark, paths, folder, run_id=f"run-{number}", selection=TableSelection(TABLES))
        assert report.published
    tables = {"change_log": paths.table("change_log")} | {str(found.name): found.path for found in report.mirrors}
    return {name: content_hash(spark.read.format("delta").load(path)) for name, path in tables.items()}


def _executors(spark: SparkSession) -> list[Executor]:
    store = spark.sparkContext._jsc.sc().statusStore()
    found = store.executorList(False)
    return [
        Executor(found.apply(n).id(), found.apply(n).hostPort(), found.apply(n).completedTasks())
        for n in range(found.size())
    ]


def _registered(spark: SparkSession) -> int:
    """The number of block managers: one per executor and one of the driver."""
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size())


if __name__ == "__main__":
    sys.exit(main())
