"""What all tests share: one Spark session for the suite, because a JVM and its first query cost twenty seconds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from cdc_pipeline.resources.lake import LakePaths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from cdc_pipeline.resources.spark import SparkLakehouse

    session = SparkLakehouse(
        driver_memory=os.environ.get("CDC_DRIVER_MEMORY", "3g"),
        # Many small queries, each once: the JVM's second compiler costs more than it gives here. Tests only.
        # With that compiler alone the JVM keeps 48 MB of compiled code by default, which the suite fills.
        settings={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=400m"},
    ).session
    yield session
    session.stop()


@pytest.fixture
def paths(tmp_path: Path) -> LakePaths:
    """An empty lake of a pipeline `shop`."""
    return LakePaths(str(tmp_path / "lake"), "shop")
