"""Where a rebuild begins: with nothing, or with a kept cut if batches were removed (`mirrors.operations.retention`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import functions as F

from cdc_pipeline.dialects.decoded_tables import OTHER_TABLES
from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.control_tables import read_sums
from cdc_pipeline.lake.delta import Commit, committed_version, table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.table_copies import copy_version
from cdc_pipeline.lake.tables.consistent_cuts import CUTS
from cdc_pipeline.lake.tables.kept_cuts import REMOVED_FROM, removal_writer, removed_batches
from cdc_pipeline.lake.writes import append_once
from cdc_pipeline.mirrors.changes.progress import NO_CUT, PublishedCut, cut_with_id
from cdc_pipeline.mirrors.cuts.cut_report import published_entries
from cdc_pipeline.mysql.model.table import TableName

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
                raise LakeError(f"{kept_at} is missing: put it back", pipeline=lake.paths.pipeline)
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
        raise LakeError(
            "batches were removed, and kept_cuts or consistent_cuts no longer has the cut that has their changes. Nothing "
            "was changed. Put these folders back",
            pipeline=lake.paths.pipeline,
        )
    return RebuildStart(cut)
