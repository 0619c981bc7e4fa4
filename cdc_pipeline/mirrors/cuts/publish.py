"""Publishes a cut: appends its row to `consistent_cuts`, after the last commit of every mirror."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.tables.consistent_cuts import append_cut
from cdc_pipeline.mirrors.changes.window import Window
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, tso_datetime
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mirrors.settings.ddl_policy import POLICY_JSON
from cdc_pipeline.mirrors.settings.selection import SELECTION_JSON
from cdc_pipeline.mysql.model.table import TableName


def publish(
    lake: Lake,
    window: Window,
    report: CutReport,
    note: dict[str, object],
    settings: CutSettings,
    *,
    rebuilt: bool = False,
    rebuilt_tables: Sequence[TableName] = (),
) -> None:
    """Appends one row: the resolved TSO, the Delta version of every mirror at it, and the outcome of the row changes.

    `settings` are stored for reads between cuts. `rebuilt`: the cut takes in all changes again, so the counts of earlier
    cuts no longer apply. `rebuilt_tables`: the same for these tables only.
    """
    row = {
        "run_id": note["run_id"],
        "published_at": datetime.now(timezone.utc),
        "rebuilt": rebuilt,
        "rebuilt_tables": [(name.database, name.table) for name in rebuilt_tables],
        "cut_id": window.cut_id,
        "resolved_tso": window.resolved_tso,
        "resolved_time": tso_datetime(window.resolved_tso),
        "ends": dict(window.before),
        "last_batch": window.last_batch,
        "time_zone": settings.time_zone,
        "keys": {table: list(columns) for table, columns in settings.keys.items()},
        "ddl_policy": POLICY_JSON.to_json(settings.policy),
        "selection": SELECTION_JSON.to_json(settings.selection),
        "column_rules": settings.columns.to_json(),
        **asdict(report.totals),
        "superseded": report.totals.superseded,
        "held_by": report.streams.held_by,
        "heartbeats": dict(report.streams.heartbeats),
        **_table_fields(report, lake.paths),
    }
    append_cut(lake, window.cut_id, row, note)


def _table_fields(report: CutReport, paths: LakePaths) -> dict[str, object]:
    """The mirrors with their versions, those that the cut changed, and the tables that wait or were breached."""
    return {
        "mirrors": [
            (
                entry.name.database,
                entry.name.table,
                entry.mirror_id,
                entry.path.removeprefix(f"{paths.home}/"),
                entry.version,
                entry.rows,
                entry.columns,
                list(entry.gaps),
                entry.keeps_deleted,
            )
            for entry in report.mirrors
        ],
        "changed": [(name.database, name.table) for name in sorted(report.changed)],
        "breached": [
            (breach.name.database, breach.name.table, breach.changes, breach.topic, breach.partition, breach.offset)
            for breach in report.breaches
        ],
        "held": [
            (table.name.database, table.name.table, *table.statement, table.commit_ts, table.rows, table.error)
            for table in report.held
        ],
    }
