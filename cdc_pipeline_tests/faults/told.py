"""Stories in two slices, whose second meets a fault."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.progress import published_cut
from cdc_pipeline.mirrors.totals import lake_balance
from cdc_pipeline.resources import delta_log
from cdc_pipeline.resources.jvm import jvm
from cdc_pipeline.resources.lake import LakePaths
from cdc_pipeline_tests.messages import Topic, tso, watermark
from cdc_pipeline_tests.mirrors.stories import STORIES
from cdc_pipeline_tests.mirrors.test_stories import PARTITIONS, assert_told
from cdc_pipeline_tests.pipelines import ingest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

NAMES = (
    "equal_rows_without_a_key_are_counted",
    "two_tables_swap_their_names_over_a_third",
    "a_dropped_table_made_again_with_another_shape",
)
FIRST, LAST = 2, 1000


@dataclass
class Told:
    """A pipeline `shop` in `folder`, which has taken in nothing yet."""

    spark: SparkSession
    folder: Path
    topic: Topic = field(default_factory=Topic)
    sent: int = 0

    @property
    def paths(self) -> LakePaths:
        return LakePaths(str(self.folder / "lake"), "shop")

    def tell(self, until: int) -> None:
        """The messages of all stories up to FIRST, or those after it, as a file that is not taken in yet."""
        for payload, partition in [message for name in NAMES for message in STORIES[name].messages]:
            if (json.loads(payload)["_tidb"]["commitTs"] <= tso(FIRST)) == (until == FIRST):
                self.topic.send(payload, partition)
                self.sent += 1
        for partition in PARTITIONS:
            self.topic.send(watermark(until), partition)
            self.sent += 1
        self.topic.write(self.folder / "captures", f"until-{until:04d}.jsonl")

    def run(self) -> None:
        ingest(self.spark, self.paths, self.folder / "captures")

    def assert_right(self) -> None:
        for name in NAMES:
            assert_told(self.spark, self.paths, STORIES[name])
        assert self.spark.read.format("delta").load(self.paths.table("raw_topic_snapshot")).count() == self.sent
        assert published_cut(self.spark, self.paths).resolved_tso == tso(LAST)
        assert lake_balance(self.spark, self.paths).balanced


def as_a_new_process(spark: SparkSession) -> None:
    """What a process has in memory of Delta's logs is forgotten."""
    delta_log._LOOKED_AT.clear()
    jvm(spark).org.apache.spark.sql.delta.DeltaLog.clearCache()


def digests(folder: Path) -> dict[str, str]:
    """Of each file below it, what it holds."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
