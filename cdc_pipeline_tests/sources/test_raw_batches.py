"""Notes of raw batches, read from Delta's log files and from Delta's history."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.writes import append_once
from cdc_pipeline.sources.raw_batches import batch_note, newest_note, notes_newest_first


def _log(paths: LakePaths, *commits: str) -> LakePaths:
    log = Path(paths.table("raw_topic_snapshot")) / "_delta_log"
    log.mkdir(parents=True)
    for number, text in enumerate(commits):
        (log / f"{number:020}.json").write_text(text)
    (log / f"{len(commits):020}.checkpoint.parquet").touch()
    (log / "_last_checkpoint").write_text("{}")
    return paths


def _commit(note: object) -> str:
    return '{"protocol":{}}\n' + json.dumps({"commitInfo": {"userMetadata": json.dumps(note)}}) + "\n"


_OURS = {"run_id": "r", "batch": 2}
_LOGS: dict[str, tuple[list[str], dict[str, object] | None]] = {
    "the newest counts": ([_commit({"run_id": "q", "batch": 1}), _commit(_OURS)], _OURS),
    "OPTIMIZE has none": ([_commit(_OURS), '{"commitInfo":{"operation":"OPTIMIZE"}}'], _OURS),
    "somebody else's note": ([_commit(_OURS), _commit({"by": "me"}), _commit("text"), _commit(None)], _OURS),
    "a note that is no JSON": ([_commit(_OURS), '{"commitInfo":{"userMetadata":"{"}}'], _OURS),
    "a commit that is torn": ([_commit(_OURS), '{"commitInf'], _OURS),
    "a commit of nothing": ([_commit(_OURS), ""], _OURS),
    "no commits": ([], None),
    "the time of the commit": (
        [json.dumps({"commitInfo": {"timestamp": 7, "userMetadata": json.dumps(_OURS)}})],
        {**_OURS, "committed_ms": 7},
    ),
    "no note": (['{"commitInfo":{}}'], None),
}


@pytest.mark.parametrize("case", _LOGS)
def test_the_newest_note(case: str, paths: LakePaths) -> None:
    commits, expected = _LOGS[case]
    assert newest_note(_log(paths, *commits)) == expected


def test_a_lake_that_is_not_there(tmp_path: Path) -> None:
    assert newest_note(LakePaths(str(tmp_path / "none"), "p")) is None


def test_a_lake_that_is_no_folder() -> None:
    assert newest_note(LakePaths("hdfs://host/lake", "p")) is None


def test_both_ways_to_read_it_agree(spark: SparkSession, paths: LakePaths) -> None:
    path = paths.table("raw_topic_snapshot")
    elsewhere = LakePaths("hdfs://host/lake", paths.pipeline, {"raw_topic_snapshot": path})  # without log files
    assert not list(notes_newest_first(Lake(spark, elsewhere)))
    for number in (1, 2):
        append_once(spark.range(1), path, Commit("writer", number, {"run_id": "r", "batch": number, "é": "😀\n"}))
    DeltaTable.forPath(spark, path).delete("id = 7")
    spark.range(1).write.format("delta").mode("append").option("userMetadata", "not JSON").save(path)
    first, second = ({"run_id": "r", "batch": number, "é": "😀\n"} for number in (1, 2))
    for lake in (Lake(spark, paths), Lake(spark, elsewhere)):
        notes = list(notes_newest_first(lake))
        assert [batch_note(lake, number) for number in (1, 2, 3)] == [*reversed(notes), None]
        times = [note.pop("committed_ms") for note in notes]
        assert notes == [second, first]
        assert times[0] >= times[1] > 0
    newest = newest_note(paths)
    assert newest is not None
    assert newest["batch"] == 2
