"""A pipeline that ingests messages slice by slice, and whose runs a test can kill at a commit of the mirrors."""

from __future__ import annotations

import shutil
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.execution.mirror_folders import move_folder
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.kills import Killed, Killer, commit_note
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.messages import Topic, watermark


class AtMirrors(Killer):
    """Kills a run before the commit or folder move of mirrors with the given number, from 0."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.left = number

    def strike(self, *deed: object) -> None:
        if any(":steps" in str(part) or "/mirror/" in str(part) for part in deed):
            self.left -= 1
            if self.left < 0:
                raise Killed(*deed)

    def note_json(self, commit: Commit) -> str:
        self.strike(commit.app_id, commit.version)
        return commit_note(commit)

    def move_folder(self, source: str, target: str) -> None:
        self.strike(source, target)
        move_folder(source, target)


@dataclass
class Stream:
    """A pipeline `shop` and its captures."""

    spark: SparkSession
    folder: Path
    topic: Topic = field(default_factory=Topic)
    slices: int = 0
    scheme: str = ""
    """`file:` for a lake in which mirrors do not move."""

    @property
    def paths(self) -> LakePaths:
        return LakePaths(f"{self.scheme}{self.folder / 'lake'}", "shop")

    @property
    def lake(self) -> Lake:
        return Lake(self.spark, self.paths)

    def write_slice(self, until: int, *messages: tuple[str, int]) -> None:
        for payload, partition in messages:
            self.topic.send(payload, partition)
        for partition in (0, 1):
            self.topic.send(watermark(until), partition)
        self.slices += 1
        self.topic.write(self.folder / "captures", f"{self.slices}.jsonl")

    def run(self, **settings: Any) -> list[str]:
        said: list[str] = []
        ingest(self.spark, self.paths, self.folder / "captures", report=said.append, **settings)
        return said

    def killed(self, number: int, **settings: Any) -> bool:
        """Runs the pipeline. Returns whether the run was killed before the commit or move with this number."""
        killer = AtMirrors(number)
        try:
            with killer.watching():
                self.run(**settings)
        except Killed:
            return True
        return False

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        path = published_cut(self.lake).mirror_folder(TableName("db", table), self.paths)
        frame = self.spark.read.format("delta").load(path)
        columns = [name for name in frame.columns if not name.startswith("_")]
        return sorted((tuple(found) for found in frame.select(*columns).collect()), key=str)

    def cuts(self) -> list[Any]:
        return self.spark.read.format("delta").load(self.paths.table("consistent_cuts")).orderBy("cut_id").collect()

    def begun_again(self, folder: Path) -> Stream:
        """A copy of the lake and its captures in `folder`."""
        shutil.copytree(self.folder, folder)
        return replace(self, folder=folder, topic=deepcopy(self.topic))
