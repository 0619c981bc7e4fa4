"""The state of a pipeline as its lake has it: mirrors, lag, gaps, held statements and dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from cdc_pipeline.checks.streams import lag_of
from cdc_pipeline.lake.control_tables import read_rows
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.tables.consistent_cuts import read_newest_cut
from cdc_pipeline.lake.tables.ddl_history import APPLIED, DUPLICATE, HELD, NO_EFFECT, NOT_INCLUDED
from cdc_pipeline.mirrors.changes.progress import PublishedCut, next_window, published_cut, read_progress
from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry, published_entries, tso_datetime, with_held_gaps
from cdc_pipeline.mirrors.operations.dry_run import PendingStatement, pending_statements
from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
from cdc_pipeline.mysql.ddl.statements import without_literals
from cdc_pipeline.positions import Position

_DONE = (APPLIED, NO_EFFECT, DUPLICATE, NOT_INCLUDED)


@dataclass(frozen=True)
class PipelineStatus:
    pipeline: str
    cut: PublishedCut
    published_at: datetime | None
    mirrors: tuple[MirrorEntry, ...]
    dead_letters: dict[str, int]
    """Rule → number of dead letters."""
    open_statements: dict[str, int]
    """Status → number of DDL statements that are not applied."""
    waiting_changes: int
    """Row changes that are decoded and not in a cut."""
    blocked_by: str
    """Why the next run cannot apply changes that wait; empty if none wait or it can."""
    held: Mapping[Position, PendingStatement] = field(default_factory=dict)
    """The statements that wait for an approval."""

    @property
    def resolved_time(self) -> datetime | None:
        return tso_datetime(self.cut.resolved_tso)

    @property
    def lag_seconds(self) -> float | None:
        """How far the mirrors are behind the clock; None without TSOs and heartbeats."""
        behind = lag_of(self.resolved_time, min(self.cut.heartbeats.values(), default=None))
        return None if behind is None else behind.total_seconds()

    @property
    def pending_changes(self) -> int:
        return self.cut.pending + self.waiting_changes

    def to_json(self) -> dict[str, Any]:
        """The status as values of JSON."""
        lag = self.lag_seconds
        return {
            "pipeline": self.pipeline,
            "cut": self.cut.cut_id,
            "resolved_tso": self.cut.resolved_tso,
            "resolved_time": _text(self.resolved_time),
            "published_at": _text(self.published_at),
            "lag_seconds": None if lag is None else round(lag, 1),
            "pending_changes": self.pending_changes,
            "blocked_by": self.blocked_by or None,
            "dead_letters": self.dead_letters,
            "open_statements": self.open_statements,
            "held": [
                {
                    "table": str(table.name),
                    "statement": str(table.statement),
                    "status": getattr(self.held.get(table.statement), "status", None),
                    "rows": table.rows,
                    "error": table.error,
                }
                for table in self.cut.held
            ],
            "mirrors": [
                {
                    "table": str(entry.name),
                    "rows": entry.rows,
                    "columns": entry.columns,
                    "delta_version": entry.version,
                    "gaps": list(entry.gaps),
                    "path": entry.path,
                }
                for entry in self.mirrors
            ],
        }


def read_status(lake: Lake) -> PipelineStatus:
    """Reads the newest cut, and what came after it."""
    cut, row = published_cut(lake), read_newest_cut(lake)
    progress = read_progress(lake, cut)
    has_new = bool(progress.new_row_changes or cut.pending > cut.held_rows)
    waits = has_new and progress.has_tsos and next_window(cut, progress) is None
    letters = read_rows(lake, "dead_letters", columns=["rule"])
    statements = Counter(row["status"] for row in read_rows(lake, "ddl_history", columns=["status"]))
    return PipelineStatus(
        lake.paths.pipeline,
        cut,
        None if row is None else row["published_at"],
        with_held_gaps(published_entries(cut, lake.paths), cut.held),
        dict(sorted(Counter(letter["rule"] for letter in letters).items())),
        {status: count for status, count in sorted(statements.items()) if status not in _DONE},
        progress.new_row_changes,
        progress.blocking_reason() if waits else "",
        {one.position: one for one in pending_statements(lake, cut, cut.selection)} if cut.held else {},
    )


def _text(time: datetime | None) -> str | None:
    return None if time is None else time.astimezone(timezone.utc).isoformat(timespec="milliseconds")


# ---- text


def status_lines(status: PipelineStatus) -> list[str]:
    """The status for a terminal: a table of the mirrors, and a line for everything that needs attention."""
    resolved, lag = status.resolved_time, status.lag_seconds
    if resolved is not None:
        moment = f"resolved TSO {status.cut.resolved_tso} ({_text(resolved)})"
    else:
        moment = "without TSOs" if status.cut.cut_id else "no cut yet"
    behind = "" if lag is None else f", {_duration(abs(lag))} {'behind' if lag >= 0 else 'ahead of'} the clock"
    lines = [f"pipeline {status.pipeline}: cut {status.cut.cut_id}, {moment}{behind}"]
    if status.mirrors:
        rows = [
            (str(entry.name), f"{entry.rows:,}", str(entry.columns), str(entry.version), str(len(entry.gaps)))
            for entry in status.mirrors
        ]
        lines += ["", *table_lines(("mirror", "rows", "columns", "version", "gaps"), rows, right=(1, 2, 3, 4)), ""]
    held = {table.name: str(table.gap) for table in status.cut.held}
    for entry in status.mirrors:
        lines += [f"gap of {entry.name}: {gap}" for gap in entry.gaps if gap != held.get(entry.name)]
    lines += [
        f"held: {table.name}, {table.rows:,} row changes wait: {_why(status, table)}" for table in status.cut.held
    ]
    lines += [f"dead letters: {count:,} of rule {rule}" for rule, count in status.dead_letters.items()]
    lines += [f"DDL statements {name}: {count:,}" for name, count in status.open_statements.items()]
    # those of held tables are in their lines
    waiting = status.pending_changes - status.cut.held_rows
    if waiting > 0:
        lines.append(f"{waiting:,} decoded row changes wait: {status.blocked_by or 'the next run applies them'}")
    return lines


def _why(status: PipelineStatus, table: HeldTable) -> str:
    """Why a table is held, and what ends it."""
    if table.error:
        return str(table.gap)
    found = status.held.get(table.statement)
    sql = "the statement" if found is None else without_literals(found.sql)
    loss = f" Lost by it: {found.loss}." if found is not None and found.loss else ""
    remedy = f"`cdc-pipeline approve --tables {table.name}` or the job {status.pipeline}_approve_ddl"
    if found is None or found.status == HELD:
        return f"{sql} at {table.statement} waits for approval.{loss} {remedy} applies it when its run ends"
    approved = f"{sql} at {table.statement} is {found.status}, which applies it when it ends."
    return f"{approved}{loss} If the run failed: {remedy}"


def table_lines(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], right: tuple[int, ...] = ()) -> list[str]:
    """A table with aligned columns. `right`: the columns that are aligned to the right."""
    widths = [max(len(row[index]) for row in (head, *rows)) for index in range(len(head))]
    lines = []
    for row in (head, tuple("-" * width for width in widths), *rows):
        cells = (
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(cells).rstrip())
    return lines


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"


# ---- OpenMetrics


def open_metrics(status: PipelineStatus) -> str:
    """The status in the OpenMetrics text format, for the textfile collector of Prometheus' node exporter."""
    pipeline = {"pipeline": status.pipeline}
    lag = status.lag_seconds
    letters = [({**pipeline, "rule": rule}, count) for rule, count in status.dead_letters.items()]
    mirrors = [({**pipeline, "table": str(entry.name)}, entry) for entry in status.mirrors]
    families: list[tuple[str, str, Sequence[tuple[dict[str, str], float]]]] = [
        ("cdc_cut", "Id of the newest cut.", [(pipeline, status.cut.cut_id)]),
        ("cdc_lag_seconds", "Lag of the mirrors behind the clock.", [] if lag is None else [(pipeline, round(lag, 1))]),
        ("cdc_pending_changes", "Row changes in no cut yet.", [(pipeline, status.pending_changes)]),
        ("cdc_held_tables", "Held and quarantined tables.", [(pipeline, len(status.cut.held))]),
        ("cdc_dead_letters", "Dead letters by rule.", letters),
        ("cdc_mirror_rows", "Rows of a mirror.", [(labels, entry.rows) for labels, entry in mirrors]),
        ("cdc_mirror_gaps", "Gaps of a mirror.", [(labels, len(entry.gaps)) for labels, entry in mirrors]),
        ("cdc_mirror_version", "Delta version of a mirror.", [(labels, entry.version) for labels, entry in mirrors]),
    ]
    lines = []
    for name, text, samples in families:
        lines += [f"# TYPE {name} gauge", f"# HELP {name} {text}"]
        lines += [f"{name}{{{_labels(labels)}}} {value}" for labels, value in samples]
    return "\n".join([*lines, "# EOF", ""])


def _labels(labels: dict[str, str]) -> str:
    escaped = {
        name: value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for name, value in labels.items()
    }
    return ",".join(f'{name}="{value}"' for name, value in escaped.items())
