"""Two runs on a lake without a lock."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.errors import TransientError
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.sources.kafka.client_settings import ClientSettings
from cdc_pipeline.sources.kafka.positions import Positions
from cdc_pipeline.sources.kafka.raw_topics import RawTopics
from cdc_pipeline.sources.source import RunContext


def test_a_batch_that_another_run_has_written(spark: SparkSession, tmp_path: Path) -> None:
    """Delta skips the second append. Its run must not go on from its own positions: it would skip records."""
    lake = Lake(spark, LakePaths(str(tmp_path), "p"))
    one, other = (
        RawTopics(lake, ClientSettings("broker:9092", {}), RunContext(run_id, lambda line: None), frozenset())
        for run_id in ("one", "other")
    )
    at = {end: Positions({("t", 0): end}, {"t": "id"}) for end in (5, 7)}
    one.append(1, (), at[5], ())
    with pytest.raises(TransientError, match=r"another run has read batch 1 at the same time.*pipeline p"):
        other.append(1, (), at[7], ())
    assert other.positions(exists=True) == at[5]
    other.append(2, (), at[7], ())
    assert one.positions(exists=True) == at[7]
    for number in range(3, 12):
        other.append(number, (), at[7], ())
    with pytest.raises(TransientError, match="another run has read batch 2"):
        one.append(2, (), at[5], ())
    # the same run again, as after a failure that followed the commit
    other.append(11, (), at[7], ())
