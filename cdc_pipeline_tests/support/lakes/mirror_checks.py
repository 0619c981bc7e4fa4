"""Runs the asset checks of mirrors for all mirrors of the newest cut."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
from pyspark.sql import SparkSession

from cdc_pipeline.checks.cuts import own_commits_result
from cdc_pipeline.checks.mirrors import keys_hold_results, schema_results
from cdc_pipeline.checks.results import CheckedAssets
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.recent_answers import RecentAnswers
from cdc_pipeline.mirrors.changes.progress import StreamProgress, published_cut
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, published_entries

CUTS = dg.AssetKey(["shop", "consistent_cuts"])
CHECKED = CheckedAssets(CUTS, lambda name: dg.AssetKey(["shop", "mirror", name.database, name.table]))


def report_of(spark: SparkSession, paths: LakePaths) -> CutReport:
    """The report of the newest cut, as of a run without new records."""
    cut = published_cut(Lake(spark, paths))
    streams = StreamProgress(cut.last_batch, True, cut.resolved_tso, None, ())
    return CutReport(False, cut.cut_id, cut.resolved_tso, streams, published_entries(cut, paths))


def mirror_checks(
    spark: SparkSession, paths: LakePaths, most_rows: int = 1000
) -> tuple[dg.AssetCheckResult, dg.AssetCheckResult, dg.AssetCheckResult]:
    """The results of `keys_hold`, `schema_matches_ddl` and `only_own_commits`."""
    report = report_of(spark, paths)
    names = [str(entry.name) for entry in report.mirrors]
    keys, *_ = keys_hold_results(Lake(spark, paths), report, CHECKED, {}, names, most_rows)
    schemas, *_ = schema_results(Lake(spark, paths), report, names, RecentAnswers(), CHECKED)
    return keys, schemas, own_commits_result(Lake(spark, paths), all_tables(Lake(spark, paths)), CUTS)


def all_tables(lake: Lake) -> list[str]:
    """The paths of the tables below the pipeline's folder."""
    home = Path(lake.paths.home)
    return sorted(str(log.parent.relative_to(home)) for log in home.rglob("_delta_log"))
