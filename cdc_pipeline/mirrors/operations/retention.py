"""Removes old batches from `raw_topic_snapshot` and `change_log`. A kept cut has their changes: rebuilds begin there.

A cut is kept by copies of its mirrors, which share their files (`lake.table_copies`). Once it is old enough, whole batches
that it covers are removed, and the next one is kept.

A rebuild begins with nothing, or with the newest kept cut once batches were removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import functions as F

from cdc_pipeline.dialects.decoded_tables import OTHER_TABLES
from cdc_pipeline.errors import LakeError
from cdc_pipeline.gaps import GapKind
from cdc_pipeline.lake.control_tables import read_rows, read_sums
from cdc_pipeline.lake.delta import Commit, commit_session, committed_version, table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import remove_folder
from cdc_pipeline.lake.table_copies import copy_version
from cdc_pipeline.lake.tables.consistent_cuts import CUTS
from cdc_pipeline.lake.tables.kept_cuts import (
    KEPT,
    REMOVED_FROM,
    KeptCut,
    append_kept,
    kept_cuts,
    removal_writer,
    removed_batches,
)
from cdc_pipeline.lake.writes import append_once
from cdc_pipeline.mirrors.changes.progress import NO_CUT, PublishedCut, cut_with_id, published_cut, window_between
from cdc_pipeline.mirrors.cuts.cut_report import published_entries
from cdc_pipeline.mirrors.cuts.reading import version_with_rows
from cdc_pipeline.mirrors.model.state import mirror_state
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.spark.small_frames import totals

_SHOWN = 5


@dataclass(frozen=True)
class Retention:
    """How many days of batches the tables keep, by name; none: all."""

    days: Mapping[str, int]

    def advance(self, lake: Lake, run_id: str, report: Callable[[str], None], now: datetime | None = None) -> None:
        """Keeps the newest cut if it is time, and removes what is old enough. Call it as the only writer, without a begun
        cut. `now`: the time; None: of the clock."""
        if not self.days:
            return
        if not lake.paths.has_files:
            raise LakeError(
                f"{lake.paths.root}: keep_raw_days and keep_change_log_days need a local lake, or one on S3"
            )
        period, now = timedelta(days=min(self.days.values())), now or datetime.now(timezone.utc)
        # a rebuild has changed what the cuts before it had
        first = max((cut["cut_id"] for cut in rebuilt_cuts(lake)), default=0)
        kept = [one for one in kept_cuts(lake) if one.cut_id >= first]
        if not kept or now - kept[-1].at >= period:
            kept += keep_newest_cut(lake, run_id, report, now)
        if old := [one for one in kept if now - one.at >= period]:
            for table, days in self.days.items():
                remove_batches(lake, table, old[-1], now - timedelta(days=days), run_id, report)
        _remove_former(lake, kept[max(len(old) - 1, 0) :])


def keep_newest_cut(lake: Lake, run_id: str, report: Callable[[str], None], now: datetime) -> list[KeptCut]:
    """Keeps the newest cut, if it has all changes that have arrived: a rebuild that begins there could not apply others."""
    published = published_cut(lake)
    entries = published_entries(published, lake.paths)
    waiting = {str(table.name) for table in published.held}
    for entry in entries:
        mirror = mirror_state(lake.spark, entry.path)
        if mirror is not None and any(gap.kind in (GapKind.LATE_CHANGES, GapKind.LATE_DDL) for gap in mirror.gaps):
            waiting.add(str(entry.name))
    if not published.cut_id or waiting:
        report(
            f"no cut is kept, and no batch is removed, while tables are held or a rebuild would apply late changes: "
            f"{', '.join(sorted(waiting)[:_SHOWN])}"
            if waiting
            else "no cut yet"
        )
        return []
    for entry in entries:
        version = version_with_rows(lake, entry.path, entry.version, is_unchanged=True)
        target = lake.paths.kept_mirror(entry.mirror_id, entry.version)
        copy_version(lake.spark, entry.path, target, entry.version if version is None else version)
    found = KeptCut(published.cut_id, _covered_batch(lake, published), now)
    append_kept(lake, KEPT, found, run_id)
    report(f"cut {published.cut_id} is kept: {len(published.mirrors)} mirrors")
    return [found]


def _covered_batch(lake: Lake, published: PublishedCut) -> int:
    """The last batch such that the cut has the row changes of it and of all batches before."""
    (first_pending,) = totals(window_between(NO_CUT, published).read_pending(lake), F.min("batch_id"))
    return published.last_batch if first_pending is None else int(first_pending) - 1


def remove_batches(
    lake: Lake, table: str, kept: KeptCut, before: datetime, run_id: str, report: Callable[[str], None]
) -> None:
    """Removes the batches that the kept cut covers and that were decoded before this time."""
    batches = read_rows(lake, "batches", ("batch_id", "<=", kept.covered), columns=["batch_id", "decoded_at"])
    last = max((row["batch_id"] for row in batches if row["decoded_at"].astimezone(timezone.utc) < before), default=0)
    if last <= removed_batches(lake, table)[0]:
        return
    append_kept(lake, table, replace(kept, covered=last), run_id)  # first: a rebuild must not begin before
    path = lake.paths.table(table)
    # without a run: that would be the note of a batch (`sources.raw_batches`)
    commit = Commit(removal_writer(lake, table), last, {"removed_up_to": last})
    DeltaTable.forPath(commit_session(lake.spark, commit), path).delete(F.col("batch_id") <= last)
    report(f"{table}: batches up to {last} are removed; a rebuild begins with cut {kept.cut_id}")


def rebuilt_cuts(lake: Lake) -> list[dict[str, Any]]:
    """`cut_id`, `rebuilt` and `rebuilt_tables` of the cuts that rebuilds have published."""
    rows = read_rows(lake, CUTS, columns=["cut_id", "rebuilt", "rebuilt_tables"])
    return [row for row in rows if row["rebuilt"] or row["rebuilt_tables"]]


def _remove_former(lake: Lake, kept: list[KeptCut]) -> None:
    """Removes the mirrors of kept cuts that no rebuild begins with any more."""
    needed = {one.cut_id for one in kept} | {removed_batches(lake, table)[1] for table in REMOVED_FROM}
    former = {one.cut_id for one in kept_cuts(lake)} - needed
    for folder in _folders(lake, former) - _folders(lake, needed):
        remove_folder(lake.spark, folder)


def _folders(lake: Lake, cuts: Iterable[int]) -> set[str]:
    entries = (entry for cut in cuts for entry in published_entries(cut_with_id(lake, cut), lake.paths))
    return {lake.paths.kept_mirror(entry.mirror_id, entry.version) for entry in entries}


# ---- where a rebuild begins

DECODED = ("change_log", *OTHER_TABLES, "batches")


@dataclass(frozen=True)
class RebuildStart:
    """A kept cut, which has the changes of all batches that were removed."""

    cut: PublishedCut

    def copy_decoded(self, lake: Lake, scratch: Lake) -> None:
        """Copies what the decoded tables have of the batches up to the cut, which are not decoded again: the cut has applied
        most of their changes and decided their statements."""
        for table in DECODED:
            rows = lake.read(table).where(F.col("batch_id") <= self.cut.last_batch)
            commit = Commit(scratch.paths.app_id(table), self.cut.last_batch, {"batch": self.cut.last_batch})
            append_once(rows, scratch.paths.table(table), commit)

    def copy_mirrors(self, lake: Lake, scratch: Lake, covers: Callable[[TableName], bool]) -> None:
        """Makes the scratch lake the lake as it was at the cut, with the mirrors that the rebuild covers."""
        kept = [entry for entry in published_entries(self.cut, lake.paths) if covers(entry.name)]
        for entry in kept:
            kept_at = lake.paths.kept_mirror(entry.mirror_id, entry.version)
            state = table_state(lake.spark, kept_at)
            if state is None:
                raise lake.error(f"{kept_at} is missing: put it back")
            target = scratch.paths.mirror_folder(entry.name, entry.mirror_id)
            copy_version(lake.spark, kept_at, target, state.version)
        ids = [entry.mirror_id for entry in kept]
        row = lake.read(CUTS).where(F.col("cut_id") == self.cut.cut_id)
        row = row.withColumn("mirrors", F.filter("mirrors", lambda mirror: mirror["mirror_id"].isin(ids)))
        append_once(row, scratch.paths.table(CUTS), Commit(scratch.paths.app_id(CUTS), self.cut.cut_id, {}))

    def earlier_changes(self, lake: Lake) -> int:
        """How many row changes the cut and those before it have applied."""
        decoded = read_sums(lake, "batches", ("batch_id", "<=", self.cut.last_batch), columns=["row_changes"])
        return decoded["row_changes"] - self.cut.pending


def rebuild_start(lake: Lake) -> RebuildStart | None:
    """Where a rebuild begins; None: with nothing. Raises LakeError if the kept cut is lost."""
    newest = max((removed_batches(lake, table) for table in REMOVED_FROM), key=lambda found: found[1])
    in_logs = any(
        (committed_version(lake.spark, lake.paths.table(table), removal_writer(lake, table)) or 0)
        > removed_batches(lake, table)[0]
        for table in REMOVED_FROM
    )
    if not newest[0] and not in_logs:
        return None
    cut = cut_with_id(lake, newest[1])
    if in_logs or cut is NO_CUT:
        raise lake.error(
            "batches were removed, and kept_cuts or consistent_cuts no longer has the cut that has their changes. Nothing "
            "was changed. Put these folders back"
        )
    return RebuildStart(cut)
