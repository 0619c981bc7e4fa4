"""A run that dies before any of its Delta commits or folder moves loses and doubles nothing (DESIGN §2, promise 2).

Every commit and every move is stopped once, just before it happens. The next run continues from the lake. The stop is an
exception in place of a kill -9. It differs only in that this process survives: nothing in the lake is cleaned up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from operator import itemgetter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline_tests.support.lakes import ddl_stories, ingested_ddl_stories
from cdc_pipeline_tests.support.lakes.followed import follow_one_batch
from cdc_pipeline_tests.support.lakes.ingested_stories import PARTITIONS, assert_ingested
from cdc_pipeline_tests.support.lakes.kills import SHORT, Killer, ingested_with_kills
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.stories import STORIES, Story
from cdc_pipeline_tests.support.messages import Topic, tso, watermark

pytestmark = pytest.mark.apart

_COUNTED = "runs stopped at a commit or a move"
SHORT_DDL = ("an_exchange_of_a_partition_with_a_table", "a_dropped_table_comes_back")


def survived_kills(
    spark: SparkSession,
    paths: LakePaths,
    folder: Path,
    slices: dict[int, list[tuple[str, int]]],
    every: int,
    run: Callable[..., object] = ingest,
) -> int:
    """Sends the messages of each slice (by the step of its last watermarks) and kills its runs. Returns the kills."""
    topic, killer, kills = Topic(), Killer(every), 0
    for until, messages in slices.items():
        for payload, partition in messages:
            topic.send(payload, partition)
        for partition in PARTITIONS:
            topic.send(watermark(until), partition)
        topic.write(folder, f"until-{until:04d}.jsonl")
        kills += ingested_with_kills(spark, paths, folder, killer, run=run)
    sent = sum(len(messages) + len(PARTITIONS) for messages in slices.values())
    assert spark.read.format("delta").load(paths.table("raw_topic_snapshot")).count() == sent
    assert spark.read.format("delta").load(paths.table("batches")).agg({"records": "sum"}).first()[0] == sent  # type: ignore[index]
    assert published_cut(Lake(spark, paths)).cut_id == len(slices)
    return kills


def assert_survives(
    spark: SparkSession,
    paths: LakePaths,
    folder: Path,
    stories: list[Story],
    every: int = 1,
    run: Callable[..., object] = ingest,
) -> int:
    """Ingests the stories in two slices with `run` and checks the result. Returns the number of kills."""
    first, last = 2, 1000
    slices: dict[int, list[tuple[str, int]]] = {first: [], last: []}
    for payload, partition in [message for story in stories for message in story.messages]:
        early = json.loads(payload)["_tidb"]["commitTs"] <= tso(first)
        slices[first if early else last].append((payload, partition))
    kills = survived_kills(spark, paths, folder, slices, every, run)
    for story in stories:
        assert_ingested(spark, paths, story)
    return kills


def assert_ddl_survives(
    spark: SparkSession, paths: LakePaths, folder: Path, names: Iterable[str], every: int = 1
) -> int:
    """As `assert_survives`, for stories of DDL without row changes, which define their slices."""
    stories = [ddl_stories.STORIES[name] for name in names]
    slices = {
        end: [message for story in stories for message in getattr(story, part)]
        for part, end in ingested_ddl_stories.SLICES.items()
    }
    kills = survived_kills(spark, paths, folder, slices, every)
    for story in stories:
        ingested_ddl_stories.assert_ingested(spark, paths, story)
    return kills


def test_killed_before_every_sixth_commit(
    spark: SparkSession, paths: LakePaths, tmp_path: Path, counted: Callable[[str, int], None]
) -> None:
    """The short form: each kill costs a whole run."""
    kills = assert_survives(spark, paths, tmp_path / "captures", [STORIES[name] for name in SHORT], every=6)
    counted(_COUNTED, kills)
    assert kills >= 4  # parallel ones count once


def test_killed_before_every_sixth_commit_of_a_run_that_follows(
    spark: SparkSession, paths: LakePaths, tmp_path: Path, counted: Callable[[str, int], None]
) -> None:
    stories = [STORIES[name] for name in SHORT]
    kills = assert_survives(spark, paths, tmp_path / "captures", stories, every=6, run=follow_one_batch)
    counted("batches of a following run stopped at a commit or a move", kills)
    assert kills >= 4


def test_killed_now_and_then_while_rows_move_without_messages(
    spark: SparkSession, paths: LakePaths, tmp_path: Path, counted: Callable[[str, int], None]
) -> None:
    kills = assert_ddl_survives(spark, paths, tmp_path / "captures", SHORT_DDL, every=6)
    counted(_COUNTED, kills)
    assert kills >= 2


# Each kill costs a run over all tables of its lake, so few stories share a lake.
_A_LAKE = 4


def _lakes(names: Iterable[str]) -> list[tuple[str, ...]]:
    known = list(names)
    return [tuple(known[start : start + _A_LAKE]) for start in range(0, len(known), _A_LAKE)]


@pytest.mark.long
@pytest.mark.parametrize("names", _lakes(STORIES), ids=itemgetter(0))
def test_killed_before_each_commit_of_all_stories(
    spark: SparkSession, paths: LakePaths, tmp_path: Path, counted: Callable[[str, int], None], names: tuple[str, ...]
) -> None:
    kills = assert_survives(spark, paths, tmp_path / "captures", [STORIES[name] for name in names])
    counted(_COUNTED, kills)
    assert kills > 12


@pytest.mark.long
@pytest.mark.parametrize("names", _lakes(ddl_stories.STORIES), ids=itemgetter(0))
def test_killed_before_each_commit_of_all_stories_of_ddl(
    spark: SparkSession, paths: LakePaths, tmp_path: Path, counted: Callable[[str, int], None], names: tuple[str, ...]
) -> None:
    kills = assert_ddl_survives(spark, paths, tmp_path / "captures", names)
    counted(_COUNTED, kills)
    assert kills > 8
