"""A run that dies before any of its Delta commits or folder moves loses and doubles nothing (DESIGN §2, promise 2).

Every commit and every move is stopped once, just before it happens; the next run begins from what is in the lake. The
stop is an exception where a kill -9 would be, which differs only in that this process lives on: nothing in the lake is
cleaned up on the way out.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from cdc_pipeline.mirrors import moves
from cdc_pipeline.mirrors.progress import published_cut
from cdc_pipeline.resources import folder_moves
from cdc_pipeline.resources.delta import Commit
from cdc_pipeline_tests.messages import Topic, tso, watermark
from cdc_pipeline_tests.mirrors import ddl_stories, test_ddl_stories
from cdc_pipeline_tests.mirrors.stories import STORIES, Story
from cdc_pipeline_tests.mirrors.test_stories import PARTITIONS, assert_told
from cdc_pipeline_tests.pipelines import ingest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cdc_pipeline.mirrors.column_rules import ColumnRules
    from cdc_pipeline.resources.lake import LakePaths

# The short forms: rows with and without a key, renames, drops, columns. Each stop costs a run over all their tables.
SHORT = (
    "equal_rows_without_a_key_are_counted",
    "two_tables_swap_their_names_over_a_third",
    "a_dropped_table_made_again_with_another_shape",
)
_COUNTED = "runs stopped at a commit or a move"
SHORT_DDL = ("an_exchange_of_a_partition_with_a_table", "a_dropped_table_comes_back")


class Killed(BaseException):
    """Not an Exception: nothing may catch it."""


class Killer:
    """Stops whatever is about to happen for the first time: each deed, or every so many."""

    def __init__(self, every: int = 1) -> None:
        self.every = every
        self.seen: set[tuple[object, ...]] = set()

    def strike(self, *deed: object) -> None:
        if deed not in self.seen:
            self.seen.add(deed)
            if len(self.seen) % self.every == 0:
                raise Killed(*deed)

    def note_json(self, commit: Commit) -> str:
        self.strike(commit.app_id, commit.version)
        return "{}" if "raw" not in commit.app_id and "truncated" not in commit.note else commit_note(commit)

    def move_folder(self, spark: SparkSession, source: str, target: str, notes: str) -> None:
        self.strike(source, target)
        folder_moves.move_folder(spark, source, target, notes)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within it each commit and each move of a folder is struck just before it happens."""
        with (
            patch.object(Commit, "note_json", property(self.note_json)),
            patch.object(moves, "move_folder", self.move_folder),
        ):
            yield


commit_note: Callable[[Commit], str] = Commit.note_json.fget  # type: ignore[attr-defined]


def ingested_with_kills(
    spark: SparkSession,
    paths: LakePaths,
    captures: Path,
    killer: Killer,
    columns: ColumnRules | None = None,
    after_kill: Callable[[], None] = lambda: None,
    **settings: Any,
) -> int:
    """Runs until one gets through; returns how many were killed. `after_kill` comes between two runs, and may be killed;
    `settings` are those of the cuts."""
    for killed in range(500):
        try:
            with killer.watching():
                if killed:
                    after_kill()
                ingest(spark, paths, captures, columns=columns, **settings)
        except Killed:
            continue
        return killed
    raise AssertionError("no run got through")


def survived_kills(
    spark: SparkSession, paths: LakePaths, folder: Path, slices: dict[int, list[tuple[str, int]]], every: int
) -> int:
    """Tells the messages of each slice (by the step that its watermarks close), each through its kills. Returns how
    many those were."""
    topic, killer, kills = Topic(), Killer(every), 0
    for until, messages in slices.items():
        for payload, partition in messages:
            topic.send(payload, partition)
        for partition in PARTITIONS:
            topic.send(watermark(until), partition)
        topic.write(folder, f"until-{until:04d}.jsonl")
        kills += ingested_with_kills(spark, paths, folder, killer)
    sent = sum(len(messages) + len(PARTITIONS) for messages in slices.values())
    assert spark.read.format("delta").load(paths.table("raw_topic_snapshot")).count() == sent
    assert spark.read.format("delta").load(paths.table("batches")).agg({"records": "sum"}).first()[0] == sent  # type: ignore[index]
    assert published_cut(spark, paths).cut_id == len(slices)
    return kills


def assert_survives(spark: SparkSession, paths: LakePaths, folder: Path, stories: list[Story], every: int = 1) -> int:
    """Tells the stories in two slices and checks the end. Returns the number of kills."""
    first, last = 2, 1000
    slices: dict[int, list[tuple[str, int]]] = {first: [], last: []}
    for payload, partition in [message for story in stories for message in story.messages]:
        early = json.loads(payload)["_tidb"]["commitTs"] <= tso(first)
        slices[first if early else last].append((payload, partition))
    kills = survived_kills(spark, paths, folder, slices, every)
    for story in stories:
        assert_told(spark, paths, story)
    return kills


def assert_ddl_survives(
    spark: SparkSession, paths: LakePaths, folder: Path, names: Iterable[str], every: int = 1
) -> int:
    """The same of stories of DDL that sends no rows, which have their slices."""
    stories = [ddl_stories.STORIES[name] for name in names]
    slices = {
        end: [message for story in stories for message in getattr(story, part)]
        for part, end in test_ddl_stories.SLICES.items()
    }
    kills = survived_kills(spark, paths, folder, slices, every)
    for story in stories:
        test_ddl_stories.assert_told(spark, paths, story)
    return kills


def test_killed_before_every_sixth_commit(
    spark: SparkSession, paths: LakePaths, tmp_path: Path, counted: Callable[[str, int], None]
) -> None:
    """The short form: each stop costs a whole run. `make test-long` stops before each one."""
    kills = assert_survives(spark, paths, tmp_path / "captures", [STORIES[name] for name in SHORT], every=6)
    counted(_COUNTED, kills)
    assert kills >= 4  # two at once count as one


def test_killed_now_and_then_while_rows_move_without_messages(
    spark: SparkSession, paths: LakePaths, tmp_path: Path, counted: Callable[[str, int], None]
) -> None:
    kills = assert_ddl_survives(spark, paths, tmp_path / "captures", SHORT_DDL, every=6)
    counted(_COUNTED, kills)
    assert kills >= 2


@pytest.mark.long
def test_killed_before_each_commit_of_all_stories(
    spark: SparkSession, paths: LakePaths, tmp_path: Path, counted: Callable[[str, int], None]
) -> None:
    kills = assert_survives(spark, paths, tmp_path / "captures", list(STORIES.values()))
    counted(_COUNTED, kills)
    assert kills > 100


@pytest.mark.long
def test_killed_before_each_commit_of_all_stories_of_ddl(
    spark: SparkSession, paths: LakePaths, tmp_path: Path, counted: Callable[[str, int], None]
) -> None:
    kills = assert_ddl_survives(spark, paths, tmp_path / "captures", ddl_stories.STORIES)
    counted(_COUNTED, kills)
    assert kills > 60
