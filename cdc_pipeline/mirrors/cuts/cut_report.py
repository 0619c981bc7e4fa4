"""What a run reports of a cut: its mirrors, what it did to each, and the outcome of the row changes. The report becomes the
row of the cut in `consistent_cuts`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone

from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.tables.consistent_cuts import append_cut
from cdc_pipeline.mirrors.changes.late_changes import Breach
from cdc_pipeline.mirrors.changes.progress import PublishedCut, StreamProgress
from cdc_pipeline.mirrors.changes.window import Window
from cdc_pipeline.mirrors.cuts.totals import NO_CHANGES, CutTotals
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mirrors.settings.ddl_policy import POLICY_JSON, HeldTable, quarantined_tables
from cdc_pipeline.mirrors.settings.selection import SELECTION_JSON
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import Position


@dataclass(frozen=True)
class MirrorEntry:
    """A mirror at a cut."""

    name: TableName
    mirror_id: str
    path: str
    version: int
    """The Delta version."""
    rows: int
    """The rows that upstream has."""
    columns: int
    gaps: tuple[str, ...]
    """As text."""
    keeps_deleted: bool = False
    """Whether the mirror keeps deleted rows beside those (`soft_delete`)."""


@dataclass
class TableCounts:
    """What a cut did to one mirror."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    changes: int = 0
    bad_rows: int = 0
    zero_dates: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class ReportedStatement:
    """A DDL statement that a cut has applied, held or not applied."""

    status: str
    """One of `APPLIED`, `HELD` and `NOT_APPLIED`."""
    tables: tuple[TableName, ...]
    statement: str
    """Short, without literals. Empty for a statement that arrived late."""
    effect: str
    position: Position


@dataclass(frozen=True)
class CutReport:
    """The result of a run."""

    published: bool
    """False if there was nothing complete to apply; then the report is of the newest cut."""
    cut_id: int
    resolved_tso: int | None
    streams: StreamProgress
    mirrors: tuple[MirrorEntry, ...]
    changed: dict[TableName, TableCounts] = field(default_factory=dict)
    totals: CutTotals = NO_CHANGES
    breaches: tuple[Breach, ...] = ()
    held: tuple[HeldTable, ...] = ()
    """Held and quarantined tables."""
    seconds: float = 0.0
    stages: Mapping[str, float] = field(default_factory=dict)
    """Seconds by stage."""
    versions_before: Mapping[str, int] = field(default_factory=dict)
    """The Delta versions at the cut before, by mirror id."""
    newest_record: datetime | None = None
    """Kafka's timestamp of the newest record whose changes the cut took in."""
    selection_changes: tuple[str, ...] = ()
    """One sentence for each effect of a changed selection."""
    statements: tuple[ReportedStatement, ...] = ()

    def after(self, resumed: CutReport) -> CutReport:
        """The report of a run that first finished another cut: with what that cut did, too."""
        return replace(
            self,
            changed={**resumed.changed, **self.changed},
            statements=(*resumed.statements, *self.statements),
            selection_changes=(*resumed.selection_changes, *self.selection_changes),
        )

    @property
    def without_quarantined(self) -> CutReport:
        """The report without the mirrors of quarantined tables."""
        quarantined = quarantined_tables(self.held)
        if not quarantined:
            return self
        return replace(self, mirrors=tuple(entry for entry in self.mirrors if entry.name not in quarantined))

    @property
    def resolved_time(self) -> datetime | None:
        return tso_datetime(self.resolved_tso)


def tso_datetime(tso: int | None) -> datetime | None:
    """The instant of a TSO in UTC, ms precision."""
    return None if tso is None else datetime.fromtimestamp((tso >> TSO_SHIFT) / 1000, timezone.utc)


def published_entries(cut: PublishedCut, paths: LakePaths) -> tuple[MirrorEntry, ...]:
    """The mirrors of a published cut, in name order, without the gaps that say that a table is held.

    Paths are those in this lake, which may have been moved as a whole since the cut.
    """
    held, entries = {table.name for table in cut.held}, []
    for row in cut.mirrors:
        name, mirror_id = TableName(row["database"], row["table"]), row["mirror_id"]
        gaps = row["gaps"][:-1] if name in held else row["gaps"]  # `with_held_gaps` appends that gap
        counts = row["version"], row["rows"], row["columns"]
        path = paths.mirror_folder(name, mirror_id)
        entries.append(MirrorEntry(name, mirror_id, path, *counts, tuple(gaps), row["keeps_deleted"]))
    return tuple(entries)


def with_held_gaps(entries: Iterable[MirrorEntry], held: Iterable[HeldTable]) -> tuple[MirrorEntry, ...]:
    """The entries, with a gap appended to those of held tables that says why they are held."""
    gaps = {table.name: str(table.gap) for table in held}
    return tuple(
        replace(entry, gaps=(*entry.gaps, gaps[entry.name])) if entry.name in gaps else entry for entry in entries
    )


# ---- the row in `consistent_cuts`


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
    """Appends the cut's row, after the last commit of every mirror: the resolved TSO, the Delta version of every mirror at
    it, and the outcome of the row changes.

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
        # with their versions
        "mirrors": [
            (
                *(
                    entry.name.database,
                    entry.name.table,
                    entry.mirror_id,
                    entry.path.removeprefix(f"{lake.paths.home}/"),
                ),
                *(entry.version, entry.rows, entry.columns, list(entry.gaps), entry.keeps_deleted),
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
    append_cut(lake, window.cut_id, row, note)
