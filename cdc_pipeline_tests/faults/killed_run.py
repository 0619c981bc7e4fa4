"""One run of a pipeline as a process of its own, which kills itself, JVM and all, before its so-manyth commit or move.

    python -m cdc_pipeline_tests.faults.killed_run LAKE CAPTURES DEED

DEED counts from 0; -1: the run is left to end, or to be killed from outside. It says `ready` once Spark has started, and
how many commits and moves there were if it gets to its end.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from cdc_pipeline.mirrors import apply
from cdc_pipeline.resources import lake as lake_module
from cdc_pipeline.resources.delta import Commit
from cdc_pipeline.resources.lake import LakePaths
from cdc_pipeline.resources.spark import SparkLakehouse
from cdc_pipeline_tests.conftest import SMALL
from cdc_pipeline_tests.pipelines import ingest

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

_note_json: Callable[[Commit], str] = Commit.note_json.fget  # type: ignore[attr-defined]


def main(lake: str, captures: str, last: int) -> int:
    deeds: set[object] = set()

    def about_to(*deed: object) -> None:
        deeds.add(deed)
        if len(deeds) == last + 1:
            os.killpg(0, signal.SIGKILL)

    def note_json(commit: Commit) -> str:
        about_to(commit.app_id, commit.version)
        return _note_json(commit)

    def move_folder(spark: SparkSession, source: str, target: str) -> None:
        about_to(source, target)
        lake_module.move_folder(spark, source, target)

    spark = SparkLakehouse(driver_memory="2g", shuffle_partitions=1, settings=SMALL).session
    print("ready", flush=True)
    with (
        patch.object(Commit, "note_json", property(note_json)),
        patch.object(apply, "move_folder", move_folder),
    ):
        ingest(spark, LakePaths(lake, "h"), Path(captures))
    print(len(deeds), flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
