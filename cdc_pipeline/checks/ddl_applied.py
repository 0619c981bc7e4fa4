"""Shows DDL that was recorded and not applied, and mirrors that have gaps: nothing is silently wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
from pyspark.sql import functions as F

from cdc_pipeline.lake.tables.ddl_history import HELD, NOT_APPLIED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Row, SparkSession

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.cuts.cut_report import CutReport

DDL_APPLIED, NO_GAPS = "ddl_applied", "no_gaps"
_SHOWN = 20
_LONGEST = 200


def ddl_applied_result(spark: SparkSession, paths: LakePaths, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Warns where statements wait for an approval, or for a version that can apply them; the metadata has each with its
    place."""
    history = spark.read.format("delta").load(paths.table("ddl_history"))
    refused = history.where(F.col("status").isin(NOT_APPLIED, HELD)).orderBy("commit_ts", "offset")
    rows = refused.limit(_SHOWN).collect()
    count = refused.count() if len(rows) == _SHOWN else len(rows)
    return dg.AssetCheckResult(
        check_name=DDL_APPLIED,
        asset_key=key,
        passed=not rows,
        severity=dg.AssetCheckSeverity.WARN,
        description=None
        if not rows
        else f"{count} DDL statement(s) {NOT_APPLIED}, or held, the first at {_place(rows[0])}. Held ones go on after "
        f"{paths.pipeline}_approve_ddl, or after {paths.pipeline}_rebuild of a table that is put aside; for the others see "
        f"what {paths.pipeline}_ddl_dry_run and docs/ddl.md say, and compare their tables with upstream",
        metadata={_place(row): f"{row['sql']} ({row['effect']})" for row in rows},
    )


def _place(row: Row) -> str:
    return f"{row['topic']}/{row['partition']}@{row['offset']}"


def no_gaps_result(report: CutReport, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Warns where a mirror may differ from upstream, and fails where a table is put aside; the metadata has each with its
    reasons and their places."""
    pipeline = key.path[0]
    gaps = {str(entry.name): "; ".join(entry.gaps) for entry in report.mirrors if entry.gaps}
    # one that could not be made has no mirror
    aside = {str(table.name): str(table.gap) for table in report.held if table.error}
    gaps |= {name: gap for name, gap in aside.items() if name not in gaps}
    return dg.AssetCheckResult(
        check_name=NO_GAPS,
        asset_key=key,
        passed=not gaps,
        severity=dg.AssetCheckSeverity.ERROR if aside else dg.AssetCheckSeverity.WARN,
        description=_advice(pipeline, {**aside, **gaps}, aside) if gaps else None,
        metadata=dict(gaps),
    )


def _advice(pipeline: str, gaps: Mapping[str, str], aside: Mapping[str, str]) -> str:
    name, gap = next(iter(gaps.items()))
    words = f"{len(gaps)} mirror(s) with gaps, such as {name}: {_short(gap)}. "
    if aside:
        return words + (
            f"{len(aside)} table(s) are put aside: when the error is understood, {pipeline}_rebuild with their names as "
            "tables brings them back; docs/operations.md (Quarantined tables)"
        )
    return words + (
        f"{pipeline}_release_dead_letters takes dead letters in, {pipeline}_rebuild late changes, {pipeline}_approve_ddl "
        "lets statements that wait go on; docs/operations.md has what to do about other reasons"
    )


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
