"""The lake that most fault tests start from. It is created once, and each test damages its own copy."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline_tests.support.lakes.story_lake import StoryLake, begun


@pytest.fixture(scope="session")
def first_slice(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> StoryLake:
    """A lake that has ingested the first slice of the stories. The second slice is waiting. Copy it before use."""
    return begun(spark, tmp_path_factory.mktemp("begun") / "begun")
