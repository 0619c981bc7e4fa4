"""Runs the asset checks of mirrors for all mirrors of the newest cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from cdc_pipeline.checks.keys_hold import KeysToCheck, keys_hold_result
from cdc_pipeline.checks.schema_matches_ddl import schema_result
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.recent_answers import RecentAnswers
from cdc_pipeline.mirrors.changes.progress import StreamProgress, published_cut
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, published_entries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_pipeline.lake.paths import LakePaths

CUTS = dg.AssetKey(["shop", "consistent_cuts"])


def report_of(spark: SparkSession, paths: LakePaths) -> CutReport:
    """The report of the newest cut, as of a run without new records."""
    cut = published_cut(Lake(spark, paths))
    streams = StreamProgress(cut.last_batch, True, cut.resolved_tso, None, ())
    return CutReport(False, cut.cut_id, cut.resolved_tso, streams, published_entries(cut, paths))


def mirror_checks(
    spark: SparkSession, paths: LakePaths, most_rows: int = 1000
) -> tuple[dg.AssetCheckResult, dg.AssetCheckResult]:
    """The results of `keys_hold` and `schema_matches_ddl`."""
    report = report_of(spark, paths)
    names = [str(entry.name) for entry in report.mirrors]
    keys = keys_hold_result(Lake(spark, paths), report, KeysToCheck({}, most_rows, names), CUTS)
    return keys, schema_result(Lake(spark, paths), report, names, RecentAnswers(), CUTS)
