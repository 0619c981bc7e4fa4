"""The lake that most faults meet: it is made once, and each test has a copy of its own to break."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cdc_pipeline_tests.support.lakes.told import Told, begun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The first slice of the stories is in, the last one is there to be taken in. Copy it."""
    return begun(spark, tmp_path_factory.mktemp("begun") / "told")
