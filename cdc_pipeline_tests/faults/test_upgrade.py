"""A lake of an earlier version says how to go on with it, and that is so; one of a later version is refused. Both before
anything is done.

`lakes/0.1.0.tar.gz` is what the code of 0.1.0 made of the first slice of the stories of `told`. The lakes of format 2 have
that slice, too, and the second one in part: a run of the code at 8395a3c was killed before a commit to a mirror that it had
just moved in a swap (`moved`), and after the swap, with the rows of a table without a key let in (`swapped`).
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import Commit, commit_metadata
from cdc_pipeline.lake.format import note_format, require_known_format
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.reading import read_cut
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.folders import tree
from cdc_pipeline_tests.support.lakes.kills import Killer, ingested_with_kills
from cdc_pipeline_tests.support.lakes.runs import run_ingest
from cdc_pipeline_tests.support.lakes.stories import put
from cdc_pipeline_tests.support.lakes.told import FIRST, LAST, Told, as_a_new_process
from cdc_pipeline_tests.support.lakes.told_stories import PARTITIONS
from cdc_pipeline_tests.support.messages import tso, watermark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LAKES = Path(__file__).parent / "lakes"


def _unpacked(spark: SparkSession, folder: Path, name: str) -> Told:
    """The lake in a folder of its own, with its first capture file."""
    with tarfile.open(_LAKES / f"{name}.tar.gz") as packed:
        packed.extractall(folder, filter="data")
    found = Told(spark, folder)
    found.tell(FIRST)
    return found


@pytest.fixture
def told(spark: SparkSession, tmp_path: Path) -> Told:
    return _unpacked(spark, tmp_path, "0.1.0")


@pytest.mark.parametrize("name", ["format-2-moved", "format-2-swapped"])
def test_a_cut_that_format_2_has_begun_is_finished(name: str, spark: SparkSession, tmp_path: Path) -> None:
    """By the numbers of that format: no step is done twice, and none is left out; killed on the way, too."""
    told = _unpacked(spark, tmp_path, name)
    told.tell(LAST)
    assert published_cut(spark, told.paths).cut_id == 1
    kills = ingested_with_kills(spark, told.paths, tmp_path / "captures", Killer(every=3))
    assert kills > 0
    told.assert_right()
    plans = spark.read.format("delta").load(told.paths.table("cut_plans")).collect()
    assert [(row["cut_id"], '"numbering":"hundreds"' in row["plan"]) for row in plans] == [(2, True)]
    # and the next one by those of this
    told.topic.send(put("bag", 1500, "9", "z")[0], 1)
    for partition in PARTITIONS:
        told.topic.send(watermark(2000), partition)
    told.topic.write(tmp_path / "captures", "more.jsonl")
    told.run()
    bag = spark.read.format("delta").load(told.paths.mirror(TableName("db", "bag")))
    assert bag.where("id = 9").count() == 1
    assert published_cut(spark, told.paths).cut_id == 3


def test_a_lake_of_0_1_0_says_how_to_go_on(
    spark: SparkSession, told: Told, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = tree(Path(told.paths.home))
    result = run_ingest(told.folder / "captures", told.folder / "lake")
    said = [str(event.event_specific_data) for event in result.all_events if event.is_failure]
    assert any("move all folders in there but raw_topic_snapshot away" in text for text in said)
    assert tree(Path(told.paths.home)) == before
    capfd.readouterr()

    (tmp_path / "away").mkdir()
    for folder in Path(told.paths.home).iterdir():
        if folder.name != "raw_topic_snapshot":
            shutil.move(folder, tmp_path / "away")
    as_a_new_process(spark)
    require_known_format(spark, told.paths)
    told.run()  # what is in the raw snapshot makes the first cut anew
    note_format(spark, told.paths)
    with read_cut(spark, told.paths.root, "shop", tso(FIRST)) as cut:
        assert sorted(row["v"] for row in cut["db.s1"].collect()) == ["one"]
    told.tell(LAST)
    told.run()
    told.assert_right()


def test_a_run_on_a_newer_lake_ends_before_it_does_anything(
    spark: SparkSession, told: Told, capfd: pytest.CaptureFixture[str]
) -> None:
    later = {"cdc.lake_format": "99"}
    commit_metadata(spark, told.paths.table("raw_topic_snapshot"), Commit("later", 1, {}), properties=later)
    before = tree(Path(told.paths.home))
    with pytest.raises(LakeError, match="has format 99"):
        read_cut(spark, told.paths.root, "shop")
    result = run_ingest(told.folder / "captures", told.folder / "lake")
    assert not result.success
    said = [str(event.event_specific_data) for event in result.all_events if event.is_failure]
    assert any("has format 99, which a newer version of cdc_pipeline has made" in text for text in said)
    assert tree(Path(told.paths.home)) == before
    capfd.readouterr()
