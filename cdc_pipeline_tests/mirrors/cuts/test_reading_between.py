"""Reading between two cuts what the mirrors of the cut before do not contain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cdc_pipeline
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mirrors.settings.selection import TableSelection
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.stories import change, create, put
from cdc_pipeline_tests.support.messages import Topic, tso, watermark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cdc_pipeline.lake.paths import LakePaths


class _Stream:
    def __init__(self, spark: SparkSession, paths: LakePaths, folder: Path) -> None:
        self.spark, self.paths, self.folder = spark, paths, folder
        self.topic = Topic()

    def send(self, end: int, *messages: tuple[str, int], selection: TableSelection | None = None) -> None:
        for payload, partition in (*messages, *((watermark(end), number) for number in range(2))):
            self.topic.send(payload, partition)
        self.topic.write(self.folder, f"{end}.jsonl")
        ingest(self.spark, self.paths, self.folder, selection=selection or TableSelection())

    def read(self, step: int) -> dict[str, list[int]]:
        """The ids in each table."""
        with cdc_pipeline.read_cut(self.spark, self.paths.root, self.paths.pipeline, tso(step)) as tables:
            return {name.table: sorted(row["id"] for row in rows.collect()) for name, rows in tables.items()}


def test_tables_that_came_back(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    """RECOVER and FLASHBACK of what an earlier cut has dropped or emptied."""
    stream = _Stream(spark, paths, tmp_path / "captures")
    stream.send(10, *(row for name in ("a", "b") for row in (create(name, 1), put(name, 2, "1", "x"))))
    stream.send(20, change("DROP TABLE a", 15), change("TRUNCATE TABLE b", 15))
    stream.send(30, change("RECOVER TABLE a", 25), change("FLASHBACK TABLE b TO c", 25), put("a", 26, "2", "y"))
    assert stream.read(24) == {"b": []}
    assert stream.read(27) == {"a": [1, 2], "b": [], "c": [1]}
    assert stream.read(30) == {"a": [1, 2], "b": [], "c": [1]}


def test_a_selection_that_was_extended(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    stream = _Stream(spark, paths, tmp_path / "captures")
    both = [row for name in ("a", "b") for row in (create(name, 1), put(name, 2, "1", "x"))]
    stream.send(10, *both, selection=TableSelection(("db.a",)))
    stream.send(20, put("b", 15, "2", "y"))
    maker = CutMaker(Lake(spark, paths), "rebuild", "UTC", 2, lambda _: None, selection=TableSelection())
    assert Rebuilder(maker).rebuild(["db.b"]).cut_id == 3
    # a rebuild repairs earlier moments too
    assert stream.read(5) == {"a": [1]}
    assert stream.read(16) == {"a": [1], "b": [1, 2]}
    assert stream.read(20) == {"a": [1], "b": [1, 2]}
