"""A pipeline that ingests the short stories in two slices, for tests in which the second slice meets a fault."""

from __future__ import annotations

import json
import shutil
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import SparkSession

from cdc_pipeline.lake import delta_log
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.spark.jvm import jvm
from cdc_pipeline_tests.support.lakes.ingested_stories import PARTITIONS, assert_ingested
from cdc_pipeline_tests.support.lakes.kills import SHORT
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.stories import STORIES
from cdc_pipeline_tests.support.messages import Topic, tso, watermark, watermark_tso

FIRST, LAST = 2, 1000


@dataclass
class StoryLake:
    """A pipeline `shop` in `folder` and its captures."""

    spark: SparkSession
    folder: Path
    topic: Topic = field(default_factory=Topic)
    sent: int = 0

    @property
    def paths(self) -> LakePaths:
        return LakePaths(str(self.folder / "lake"), "shop")

    def write_slice(self, until: int) -> None:
        """Writes a capture file without ingesting it.

        It has the messages of all stories up to FIRST if `until` is FIRST, else those after it.
        """
        for payload, partition in [message for name in SHORT for message in STORIES[name].messages]:
            if (json.loads(payload)["_tidb"]["commitTs"] <= tso(FIRST)) == (until == FIRST):
                self.topic.send(payload, partition)
                self.sent += 1
        for partition in PARTITIONS:
            self.topic.send(watermark(until), partition)
            self.sent += 1
        self.topic.write(self.folder / "captures", f"until-{until:04d}.jsonl")

    def copied(self, folder: Path) -> StoryLake:
        """A copy of the lake and its captures in `folder`, which may exist."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return replace(self, folder=folder, topic=deepcopy(self.topic))

    def run(self) -> None:
        ingest(self.spark, self.paths, self.folder / "captures")

    def assert_right(self) -> None:
        for name in SHORT:
            assert_ingested(self.spark, self.paths, STORIES[name])
        assert self.spark.read.format("delta").load(self.paths.table("raw_topic_snapshot")).count() == self.sent
        assert published_cut(Lake(self.spark, self.paths)).resolved_tso == watermark_tso(LAST)
        assert lake_balance(Lake(self.spark, self.paths)).is_balanced


def begun(spark: SparkSession, folder: Path) -> StoryLake:
    """A pipeline that has ingested the first slice. The capture file of the second exists."""
    lake = StoryLake(spark, folder)
    lake.write_slice(FIRST)
    lake.run()
    lake.write_slice(LAST)
    return lake


def as_a_new_process(spark: SparkSession) -> None:
    """Clears the caches of Delta logs, as in a new process."""
    delta_log._CHECKED.clear()
    jvm(spark).org.apache.spark.sql.delta.DeltaLog.clearCache()
