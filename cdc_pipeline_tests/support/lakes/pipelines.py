"""Runs the stages of a pipeline in their order, without Dagster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from cdc_pipeline.contracts.limits import MAX_CLOCK_SKEW_MS
from cdc_pipeline.dialects.decoded_tables import DecodeSettings, decode_batches
from cdc_pipeline.lake.format import store_format
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import CutReport
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy
from cdc_pipeline.mirrors.settings.selection import ALL_TABLES, TableSelection
from cdc_pipeline.sources.capture_files.source import CaptureFiles
from cdc_pipeline.sources.source import RunContext, Source


def ingest(
    spark: SparkSession,
    paths: LakePaths,
    captures: Path | Source,
    *,
    run_id: str = "test",
    time_zone: str = "UTC",
    keys: Mapping[str, tuple[str, ...]] | None = None,
    policy: DdlPolicy | None = None,
    claim_store: str | None = None,
    selection: TableSelection = ALL_TABLES,
    columns: ColumnRules | None = None,
    clock_skew_ms: int = MAX_CLOCK_SKEW_MS,
    report: Callable[[str], None] = lambda line: None,
    tables: Mapping[str, str] | None = None,
) -> CutReport:
    source = CaptureFiles(str(captures)) if isinstance(captures, Path) else captures
    source.ingest(Lake(spark, paths), RunContext(run_id, lambda line: None))
    store_format(Lake(spark, paths))
    settings = DecodeSettings(claim_store=claim_store, clock_skew_ms=clock_skew_ms, tables=tables or {})
    decode_batches(Lake(spark, paths), settings)
    maker = CutMaker(
        Lake(spark, paths),
        run_id,
        time_zone,
        2,
        report,
        keys or {},
        policy or DdlPolicy(),
        selection,
        columns or ColumnRules(),
    )
    return maker.advance()
