"""A lake of an earlier version says how to go on with it, and that is so; one of a later version is refused. Both before
anything is done.

`lakes/0.1.0.tar.gz` is what the code of 0.1.0 made of the first slice of the stories of `told`.
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_pipeline.errors import LakeError
from cdc_pipeline.mirrors.reading import read_cut
from cdc_pipeline.resources.delta import Commit, commit_metadata
from cdc_pipeline.resources.lake_format import note_format, require_known_format
from cdc_pipeline_tests.faults.told import FIRST, LAST, Told, as_a_new_process
from cdc_pipeline_tests.integration.runs import run_ingest
from cdc_pipeline_tests.messages import tso
from cdc_pipeline_tests.sources.folders import tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LAKES = Path(__file__).parent / "lakes"


@pytest.fixture
def told(spark: SparkSession, tmp_path: Path) -> Told:
    """The lake of 0.1.0 in a folder of its own, with its capture file."""
    with tarfile.open(_LAKES / "0.1.0.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    found = Told(spark, tmp_path)
    found.tell(FIRST)
    return found


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
