"""A process that runs a pipeline and kills itself with its JVM before a given commit or folder move.

    python -m cdc_pipeline_tests.support.lakes.killed_run LAKE CAPTURES DEED

DEED: the number of the commit or move, from 0; -1: the process does not kill itself. Prints `ready` when Spark has
started, and at the end the number of commits and moves.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from cdc_pipeline.lake.paths import LakePaths, stores_of
from cdc_pipeline.spark.session import SparkLakehouse
from cdc_pipeline_tests.support.lakes.kills import Killer
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.spark_settings import SHORT_LIVED


class OwnKiller(Killer):
    """Kills this process group before the commit or move with this number."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self._last = last

    def strike(self, *deed: object) -> None:
        self.seen.add(deed)
        if len(self.seen) == self._last + 1:
            os.killpg(0, signal.SIGKILL)


def main(lake: str, captures: str, last: int) -> int:
    killer = OwnKiller(last)
    stores = list(stores_of(lake))
    spark = SparkLakehouse(driver_memory="2g", shuffle_partitions=1, stores=stores, settings=dict(SHORT_LIVED)).session
    print("ready", flush=True)
    with killer.watching():
        ingest(spark, LakePaths(lake, "h"), Path(captures))
    print(len(killer.seen), flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
