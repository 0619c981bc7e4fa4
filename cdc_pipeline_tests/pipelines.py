"""One run of a pipeline without Dagster around it: the same stages in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.dialects.change_tables import decoded_batches
from cdc_pipeline.mirrors.cut import CutMaker
from cdc_pipeline.mirrors.policy import DdlPolicy
from cdc_pipeline.sources.raw_snapshot import new_files_taken_in

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cdc_pipeline.mirrors.cut_report import CutReport
    from cdc_pipeline.resources.lake import LakePaths


def ingest(
    spark: SparkSession,
    paths: LakePaths,
    captures: Path,
    *,
    run_id: str = "test",
    time_zone: str = "UTC",
    keys: Mapping[str, tuple[str, ...]] | None = None,
    policy: DdlPolicy | None = None,
) -> CutReport:
    new_files_taken_in(spark, paths, str(captures), run_id)
    decoded_batches(spark, paths)
    maker = CutMaker(spark, paths, run_id, time_zone, 2, lambda line: None, keys or {}, policy or DdlPolicy())
    return maker.brought_up_to_date()
