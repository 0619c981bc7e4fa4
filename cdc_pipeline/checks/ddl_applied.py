"""The checks `ddl_applied` (statements that are recorded, but not applied) and `no_gaps` (known differences of mirrors)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cdc_pipeline.checks.markdown import check_result
from cdc_pipeline.lake.control_tables import read_rows
from cdc_pipeline.lake.tables.ddl_history import HELD, NOT_APPLIED
from cdc_pipeline.mysql.ddl.shown_statement import without_literals
from cdc_pipeline.positions import POSITION, Position

if TYPE_CHECKING:
    from collections.abc import Mapping

    import dagster as dg

    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.lake.recent_answers import RecentAnswers
    from cdc_pipeline.mirrors.cuts.cut_report import CutReport

DDL_APPLIED, NO_GAPS = "ddl_applied", "no_gaps"
_SHOWN = 20
_COLUMNS = (*POSITION, "commit_ts", "sql", "status", "effect")
_LONGEST = 200


def ddl_applied_result(lake: Lake, recent: RecentAnswers, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Warns if statements are held for approval or cannot be applied. The metadata lists them by position, without
    literals, which may be values of rows."""
    name = lake.paths.pipeline

    def read_unapplied() -> list[dict[str, Any]]:
        found = [
            row
            for status in (NOT_APPLIED, HELD)
            for row in read_rows(lake, "ddl_history", ("status", "=", status), columns=_COLUMNS)
        ]
        return sorted(found, key=lambda row: (row["commit_ts"], row["offset"]))

    unapplied = recent.cached_query("statements not applied", lake.state("ddl_history"), read_unapplied)
    rows, count = unapplied[:_SHOWN], len(unapplied)
    return check_result(
        DDL_APPLIED,
        key,
        [f"{count} DDL statement(s) {NOT_APPLIED} or held, the first at {_position(row)}" for row in rows[:1]],
        f"To apply held statements, run {name}_approve_ddl, or {name}_rebuild if the table is quarantined. For the "
        f"others, run {name}_ddl_dry_run, read `cdc-pipeline docs ddl` and compare their tables with upstream",
        # the effect of a held statement repeats the gap of its table
        {
            _position(row): without_literals(row["sql"])
            + (" (held)" if row["status"] == HELD else f" ({without_literals(row['effect'])})")
            for row in rows
        },
    )


def _position(row: Mapping[str, Any]) -> str:
    return str(Position(row["topic"], row["partition"], row["offset"]))


def no_gaps_result(report: CutReport, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Warns if a mirror may differ from upstream, fails if a table is quarantined. The metadata lists reasons per table."""
    pipeline = key.path[0]
    gaps = {str(entry.name): "; ".join(entry.gaps) for entry in report.mirrors if entry.gaps}
    # a quarantined table may have no mirror
    quarantined = {str(table.name): str(table.gap) for table in report.held if table.error}
    gaps |= {name: gap for name, gap in quarantined.items() if name not in gaps}
    examples = [*{**quarantined, **gaps}.items()][:1]
    return check_result(
        NO_GAPS,
        key,
        [f"{len(gaps)} mirror(s) have gaps, for example {name}: {_short(gap)}" for name, gap in examples],
        f"{len(quarantined)} table(s) are quarantined: resolve the error, then run {pipeline}_rebuild with their names "
        "in tables (`cdc-pipeline docs operations quarantined`)"
        if quarantined
        else f"Run {pipeline}_release_dead_letters for dead letters, {pipeline}_rebuild for late changes, "
        f"{pipeline}_approve_ddl for held statements. For other reasons read `cdc-pipeline docs operations gaps`",
        gaps,
        is_error=bool(quarantined),
    )


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
