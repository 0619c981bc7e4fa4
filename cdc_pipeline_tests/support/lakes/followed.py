"""Runs the loop of `<pipeline>_follow` without a Dagster run."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
from pyspark.sql import SparkSession

from cdc_pipeline.assets.asset_events import AssetEvents
from cdc_pipeline.assets.follower import Follower, FollowLimits
from cdc_pipeline.checks.streams import NO_LIMITS
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sources.capture_files.source import CaptureFiles
from cdc_pipeline.spark.session import SparkLakehouse


class _NoEvents(AssetEvents):
    def report(self, *_: object) -> None:
        """There is no run to report to."""


def follow_one_batch(spark: SparkSession, paths: LakePaths, captures: Path, columns: None) -> None:
    """The loop of a run that ends without news after its first batch."""
    pipeline = Pipeline(paths.pipeline, CaptureFiles(str(captures)), paths.root)
    with dg.DagsterInstance.ephemeral() as instance:
        context: Any = SimpleNamespace(
            instance=instance,
            log=logging.getLogger("follow"),
            run=SimpleNamespace(run_id="test"),
            resources=SimpleNamespace(**{pipeline.spark_key: SparkLakehouse()}),
        )
        assert SparkLakehouse().start() is spark
        events = _NoEvents(instance, {}, ())
        limits = FollowLimits(idle_seconds=0.5)
        follower = Follower(context, pipeline, events, NO_LIMITS, limits, lambda: False)
        assert columns is None
        follower.follow()
        assert follower.batches == 1
