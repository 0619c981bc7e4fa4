"""Opening a lake of another format fails before anything changes, and the error's instructions work."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import Commit, commit_metadata
from cdc_pipeline.lake.format import require_known_format, store_format
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.cuts.reading import read_cut
from cdc_pipeline_tests.support.folders import tree
from cdc_pipeline_tests.support.lakes.runs import run_ingest
from cdc_pipeline_tests.support.lakes.story_lake import StoryLake, as_a_new_process


def test_a_lake_of_another_format_is_rebuilt_from_its_raw_records(
    spark: SparkSession, first_slice: StoryLake, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lake = first_slice.copied(tmp_path)
    home = Path(lake.paths.home)
    other = {"cdc.lake_format": "99"}
    commit_metadata(spark, lake.paths.table("raw_topic_snapshot"), Commit("other", 1, {}), properties=other)
    before = tree(home)
    with pytest.raises(LakeError, match="has format 99"):
        read_cut(spark, lake.paths.root, "shop")
    result = run_ingest(lake.folder / "captures", lake.folder / "lake")
    assert not result.success
    messages = [str(event.event_specific_data) for event in result.all_events if event.is_failure]
    assert any("move all folders but raw_topic_snapshot out of" in text for text in messages)
    assert tree(home) == before
    capfd.readouterr()

    (tmp_path / "away").mkdir()
    for folder in home.iterdir():
        if folder.name != "raw_topic_snapshot":
            shutil.move(folder, tmp_path / "away")
    as_a_new_process(spark)
    require_known_format(Lake(spark, lake.paths))
    store_format(Lake(spark, lake.paths))
    lake.run()
    lake.assert_right()
