"""The table of mirrors in the metadata of `consistent_cuts`: one look at a pipeline in Dagster's UI."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc_pipeline.assets.metadata import table_value
from cdc_pipeline.checks.streams import lag
from cdc_pipeline.mirrors.cuts.cut_report import tso_datetime

if TYPE_CHECKING:
    import dagster as dg

    from cdc_pipeline.mirrors.cuts.cut_report import CutReport, MirrorEntry

MOST_MIRRORS = 50
"""Each cut stores the table, so it is short: held mirrors, then those with gaps, then those that the cut changed."""
_COLUMNS = ["mirror", "gaps", "held", "rows", "changes", "lag_seconds"]


def overview(report: CutReport, now: datetime | None = None) -> dg.TableMetadataValue:
    """A row per mirror: number of gaps, since which statement it is held, rows upstream has, changes of the cut, and lag.

    The lag of a held mirror counts from where it stopped; without TSOs and heartbeats it is empty.
    """
    held = {table.name: table for table in report.held}
    moment = now or datetime.now(timezone.utc)
    common = lag(report, moment)

    def order(entry: MirrorEntry) -> tuple[bool, bool, bool, str]:
        return entry.name not in held, not entry.gaps, entry.name not in report.changed, str(entry.name)

    def row(entry: MirrorEntry) -> list[str | int | float]:
        table, changed = held.get(entry.name), report.changed.get(entry.name)
        has_tso = table is not None and report.resolved_tso is not None and table.commit_ts > 0
        stopped = tso_datetime(table.commit_ts) if table is not None and has_tso else None
        behind = common if stopped is None else moment - stopped
        since = "" if table is None else ("quarantined" if table.error else f"since {table.statement}")
        return [
            str(entry.name),
            len(entry.gaps),
            since,
            entry.rows,
            0 if changed is None else changed.changes,
            "" if behind is None else round(behind.total_seconds(), 1),
        ]

    return table_value(_COLUMNS, map(row, sorted(report.mirrors, key=order)[:MOST_MIRRORS]))
