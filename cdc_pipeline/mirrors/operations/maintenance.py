"""Maintenance of a lake: compacts small files (OPTIMIZE) and removes files that no kept version needs (VACUUM).

No row changes. The files of a replaced version stay for `keep_hours`, or for the table's own
`delta.deletedFileRetentionDuration` if that is longer.

Between batches, `keep_small` joins small files and shortens logs, so that the thousandth batch costs as much as the tenth.
Each table has its own turn among a hundred cuts, so that no batch has to wait for all of them.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.control_tables import compact_rows
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.delta_log import file_retention_hours
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import CONTROL_TABLES, OWN_TABLES, first_line
from cdc_pipeline.lake.restored_tables import require_not_restored
from cdc_pipeline.lake.upkeep import compact_files, compact_small_files, shorten_log
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_report import CutReport
from cdc_pipeline.mirrors.cuts.stored_plan import is_begun
from cdc_pipeline.mirrors.settings.table_patterns import matches_any

LEAST_KEEP_HOURS = 168
"""Delta's own limit: a slow reader or writer may still use files that were replaced after it started."""
EVERY = 100
"""Cuts, or versions of a mirror, from one turn of a table to the next."""
KEPT_VERSIONS = 300
"""Versions of a mirror and of `change_log` that stay readable, for queries of a cut's versions and for streams."""
KEPT_OWN_VERSIONS = 100
"""Versions of the other tables, which nobody reads at an earlier version."""


@dataclass(frozen=True)
class TableMaintenance:
    """What maintenance did to one table."""

    table: str
    files_removed: int
    """Small files that compaction replaced by `files_added` larger ones."""
    files_added: int
    vacuumed: bool
    seconds: float


@dataclass(frozen=True)
class Maintenance:
    """What to do. Raises LakeError if `keep_hours` is below LEAST_KEEP_HOURS."""

    tables: Sequence[str] = ("*",)
    """Patterns on a table's name below the pipeline's folder: `change_log`, `mirror/shop.orders`."""
    compact: bool = True
    vacuum: bool = True
    keep_hours: int = LEAST_KEEP_HOURS

    def __post_init__(self) -> None:
        if self.keep_hours < LEAST_KEEP_HOURS:
            raise LakeError(
                f"keep_hours: {self.keep_hours} is too little: {LEAST_KEEP_HOURS} or more are expected, so that running "
                "readers keep their files"
            )

    def run(self, lake: Lake, report: Callable[[str], None]) -> list[TableMaintenance]:
        """Maintains each chosen table, one after another. Call it as the only writer (`lake.lock`).

        Raises LakeError if no table matches, if a table was restored (RESTORE), or if a cut is begun and not published: its
        mirrors have newer versions already, and the published cut still needs the older ones.
        """
        published = published_cut(lake)
        if is_begun(lake, published):
            raise lake.error(f"cut {published.cut_id + 1} is begun and not published: run the ingest first")
        names = {table: lake.paths.table(table) for table in OWN_TABLES}
        names |= {f"mirror/{name}": published.mirror_folder(name, lake.paths) for name in sorted(published.names)}
        chosen = {name: path for name, path in names.items() if matches_any(name, self.tables)}
        if not chosen:
            raise lake.error(f"tables: {list(self.tables)} matches no table of the lake: {', '.join(names)}")
        done = []
        for name, path in chosen.items():
            if table_state(lake.spark, path) is not None:
                require_not_restored(lake, path)
                upkeep = self._maintain(lake.spark, name, path)
                done.append(upkeep)
                report(f"{name}: {upkeep.files_removed} files into {upkeep.files_added}, {upkeep.seconds:.1f} s")
        return done

    def _maintain(self, spark: SparkSession, name: str, path: str) -> TableMaintenance:
        started = time.monotonic()
        removed = added = 0
        if self.compact:
            removed, added = compact_files(spark, path)
        if self.vacuum:
            session = spark.newSession()
            # by default Delta ignores the hours and keeps files for the table's delta.deletedFileRetentionDuration
            session.conf.set("spark.databricks.delta.vacuum.retentionWindowIgnore.enabled", "false")
            # a mirror that does not change gets no commits either
            session.conf.set("spark.databricks.delta.vacuum.logging.enabled", "false")
            # Delta refuses fewer hours than the table's property
            hours = max(self.keep_hours, file_retention_hours(spark, path))
            DeltaTable.forPath(session, path).vacuum(hours)
        return TableMaintenance(name, removed, added, self.vacuum, time.monotonic() - started)


def keep_small(lake: Lake, report: CutReport, say: Callable[[str], None]) -> None:
    """Keeps the tables small whose turn it is. Call it as the only writer, after a run has advanced the mirrors.

    An error, such as a conflict with another writer, leaves the table to its next turn: the run has done its work.
    """
    turn = report.cut_id if report.published else report.streams.last_batch
    for number, table in enumerate(OWN_TABLES):
        if turn >= EVERY and turn % EVERY == number * EVERY // len(OWN_TABLES):
            keep_table_small(lake, table, lake.paths.table(table), say)
    for entry in report.mirrors:
        before = report.versions_before.get(entry.mirror_id, entry.version)
        if entry.version >= EVERY and _turns(entry.mirror_id, before) != _turns(entry.mirror_id, entry.version):
            keep_table_small(lake, "", entry.path, say)


def _turns(mirror_id: str, version: int) -> int:
    """How many turns a mirror has had up to this version. Mirrors of equal versions have their turns in different cuts."""
    return (version + zlib.crc32(mirror_id.encode()) % EVERY) // EVERY


def keep_table_small(lake: Lake, own_table: str, path: str, say: Callable[[str], None]) -> None:
    """Joins the table's small files and shortens its log. An error is only reported. `own_table`: empty for a mirror."""
    name = path.removeprefix(f"{lake.paths.home}/")
    try:
        if own_table in CONTROL_TABLES and compact_rows(lake, own_table):
            return
        if table_state(lake.spark, path) is None:
            return
        removed, added = compact_small_files(lake.spark, path)
        shorten_log(lake.spark, path, KEPT_VERSIONS if own_table in ("", "change_log") else KEPT_OWN_VERSIONS)
    except Exception as error:  # the cut is published, and its results are to be reported
        say(f"{name}: small files and old commits stay until the next time: {first_line(error)}")
        return
    if removed:
        say(f"{name}: {removed} small files joined into {added}")
