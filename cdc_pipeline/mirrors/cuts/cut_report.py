"""What a cut is to those who look at it: its mirrors, what it did to each, and what became of the changes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.mirrors.cuts.totals import NO_CHANGES, CutTotals
from cdc_pipeline.mysql.model.table import TableName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.changes.late_changes import Breach
    from cdc_pipeline.mirrors.changes.progress import PublishedCut, StreamProgress
    from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
    from cdc_pipeline.mirrors.settings.selection import Sources


@dataclass(frozen=True)
class MirrorEntry:
    """A mirror as a cut shows it, `gaps` in words. `rows` are those that upstream has; `keeps_deleted`: others are beside
    them."""

    name: TableName
    mirror_id: str
    path: str
    version: int
    rows: int
    columns: int
    gaps: tuple[str, ...]
    keeps_deleted: bool = False


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
class CutReport:
    """What a run shows of a cut. `published` is False where there was nothing complete to apply.

    `stages` are the seconds of each part of it; `versions_before` the Delta versions of the cut before, by mirror id;
    `newest_record` when the newest of the records whose changes it took in was produced, as Kafka says; `sources` the
    upstream tables of mirrors that have names of their own, and `selection_changes` what became of mirrors because the
    pipeline's selection is another one now.
    """

    published: bool
    cut_id: int
    resolved_tso: int | None
    streams: StreamProgress
    mirrors: tuple[MirrorEntry, ...]
    changed: dict[TableName, TableCounts] = field(default_factory=dict)
    totals: CutTotals = NO_CHANGES
    breaches: tuple[Breach, ...] = ()
    held: tuple[HeldTable, ...] = ()
    seconds: float = 0.0
    stages: Mapping[str, float] = field(default_factory=dict)
    versions_before: Mapping[str, int] = field(default_factory=dict)
    newest_record: datetime | None = None
    sources: Sources = field(default_factory=dict)
    selection_changes: tuple[str, ...] = ()

    @property
    def without_put_aside(self) -> CutReport:
        """The same without the mirrors of tables that are put aside."""
        aside = {table.name for table in self.held if table.error}
        return (
            replace(self, mirrors=tuple(entry for entry in self.mirrors if entry.name not in aside)) if aside else self
        )

    @property
    def resolved_time(self) -> datetime | None:
        return tso_datetime(self.resolved_tso)


def tso_datetime(tso: int | None) -> datetime | None:
    """The instant of a TSO in UTC, ms precision."""
    return None if tso is None else datetime.fromtimestamp((tso >> TSO_SHIFT) / 1000, timezone.utc)


def published_entries(cut: PublishedCut, paths: LakePaths) -> tuple[MirrorEntry, ...]:
    """The mirrors of a published cut, in name order, where they are now: a lake may have been moved as a whole. Without the
    gaps of tables that wait."""
    waiting = {table.name for table in cut.held}
    return tuple(
        MirrorEntry(
            name := TableName(row["database"], row["table"]),
            row["mirror_id"],
            paths.mirror(name),
            row["version"],
            row["rows"],
            row["columns"],
            # `with_held_gaps` puts that last
            tuple(row["gaps"][:-1] if name in waiting else row["gaps"]),
            row["keeps_deleted"],
        )
        for row in cut.mirrors
    )


def with_held_gaps(entries: Iterable[MirrorEntry], held: Iterable[HeldTable]) -> tuple[MirrorEntry, ...]:
    """The entries, those of tables that wait marked with what they wait for, at the end."""
    waiting = {table.name: str(table.gap) for table in held}
    return tuple(
        replace(entry, gaps=(*entry.gaps, waiting[entry.name])) if entry.name in waiting else entry for entry in entries
    )
