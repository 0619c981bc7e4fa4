"""The window of a cut: the row changes and statements between the last published cut and the newest resolved TSO.

The window is stored with the plan (`stored_plan`) before the cut changes any mirror.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, has_trait
from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.mirrors.changes.row_filters import clock_ts, is_at_or_after
from cdc_pipeline.mirrors.model.source_tables import SourceTableName, source_columns
from cdc_pipeline.positions import POSITION
from cdc_pipeline.spark.folded import balanced
from cdc_pipeline.spark.generated_code import is_at_most

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, Row

    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.mirrors.changes.late_ddl import Replay
    from cdc_pipeline.mirrors.changes.progress import PublishedCut, StreamProgress
    from cdc_pipeline.mysql.model.table import TableName


@dataclass(frozen=True)
class Window:
    """Rows with `after_tso < commit_ts <= resolved_tso` of batches up to `last_batch`. Without `after_tso` those of the
    batches above `after_batch`; without watermarks all of these."""

    cut_id: int
    after_tso: int | None
    """The resolved TSO of the cut before. None: no lower bound."""
    resolved_tso: int | None
    """None without watermarks."""
    after_batch: int
    last_batch: int

    @property
    def is_first_with_tsos(self) -> bool:
        """Whether the cuts before had no TSOs."""
        return self.resolved_tso is not None and self.after_tso is None and self.after_batch > 0

    def rows_in(self, frame: DataFrame) -> DataFrame:
        """The rows of `change_log` or `ddl_history` in this window."""
        return frame.where(self._is_inside())

    def _is_inside(self) -> Column:
        decoded = F.col("batch_id") <= self.last_batch
        if self.resolved_tso is None:
            return decoded & (F.col("batch_id") > self.after_batch)
        inside = decoded & _is_at_or_before(self.resolved_tso)
        # cuts without TSOs have applied all of their batches
        return inside & (F.col("batch_id") > self.after_batch if self.after_tso is None else _is_after(self.after_tso))

    def read_changes(self, lake: Lake) -> DataFrame:
        """`rows_in` of `change_log`."""
        if self.resolved_tso is None:
            return lake.read_batches("change_log", self.after_batch + 1, self.last_batch)
        rows = _read_after(lake, self.after_tso, self.after_batch, self.last_batch)
        return rows.where(_is_up_to(self.resolved_tso))

    def read_pending(self, lake: Lake) -> DataFrame:
        """The row changes of the batches so far that a later cut will apply."""
        if self.resolved_tso is None:
            return _unpaired_halves(lake.read_batches("change_log", self.last_batch, self.last_batch), self.last_batch)
        return _read_after(lake, self.resolved_tso, 0, self.last_batch)

    def changes(
        self,
        log: DataFrame,
        inside: DataFrame,
        *,
        had_pending: bool,
        replayed: Mapping[TableName | SourceTableName, Replay],
        late: DataFrame | None = None,
    ) -> DataFrame:
        """The row changes that this cut reads, with `is_new` (applied by this cut) and `applied_before` (by an earlier one).

        DataWorks may send an UPDATE as two records. The first half alone would delete the row, so it stays pending until
        the second arrives.

        Without watermarks, changes of earlier cuts that are not older than the oldest new change are read again with
        `applied_before`, so that late changes neither undo them nor count twice.

        `inside`: the rows of `log` in this window. `had_pending`: the cut before left changes pending. `replayed`: tables
        whose earlier changes are replayed, and from when. `late`: late rows of `log` that this cut applies too.
        """
        inside = inside if late is None else inside.unionByName(late)
        if self.resolved_tso is not None:
            return inside.withColumns({"is_new": F.lit(True), "applied_before": F.lit(False)})
        before = log.where(F.col("batch_id") <= self.after_batch)
        if had_pending:
            pending = _unpaired_halves(log, self.after_batch)
            inside = inside.unionByName(pending)
            before = before.join(F.broadcast(pending.select(*POSITION)), list(POSITION), "left_anti")
        found = inside.agg(
            F.min("commit_ts").alias("oldest"), F.max(_is_update_half()).alias("halves"), F.min(clock_ts()).alias("ts")
        ).first()
        assert found is not None
        if found["halves"]:
            pending = _unpaired_halves(log, self.last_batch).select(*POSITION)
            inside = inside.join(F.broadcast(pending), list(POSITION), "left_anti")
        new = inside.withColumns({"is_new": F.lit(True), "applied_before": F.lit(False)})
        if self.after_batch == 0 or (found["oldest"] is None and not replayed):
            return new
        conditions = [since.is_replayed(name) for name, since in replayed.items()]
        is_read = balanced(operator.or_, [is_at_or_after(found["oldest"], found["ts"]), *conditions], F.lit(False))
        # source tables of merged mirrors only: `with_replayed_rows` decides for other tables
        of_sources = [since.is_replayed(name) for name, since in replayed.items() if isinstance(name, SourceTableName)]
        is_replayed = balanced(operator.or_, of_sources, F.lit(False))
        return new.unionByName(
            before.where(is_read).withColumns({"is_new": is_replayed, "applied_before": F.lit(True)})
        )

    def rows_before(self, frame: DataFrame) -> DataFrame:
        """The rows up to the end of the cut before."""
        inside = frame.where(F.col("batch_id") <= self.after_batch)
        return inside if self.after_tso is None else inside.where(_is_at_or_before(self.after_tso))

    def late_rows(self, frame: DataFrame) -> DataFrame:
        """New rows at or below the applied TSO: see `mirrors.changes.late_changes`."""
        return frame.where(self._is_late())

    def is_at_watermark(self) -> Column:
        """Whether a late row has exactly the applied TSO. Never for DataWorks, whose `commit_ts` is no TSO."""
        return (F.col("commit_ts") == F.lit(self.after_tso)) & ~has_trait(Trait.NUMBERS_CHANGES)

    def _is_late(self) -> Column:
        if self.after_tso is None:
            return F.lit(False)
        return F.col("batch_id").between(self.after_batch + 1, self.last_batch) & _is_at_or_before(self.after_tso)

    def collect_new_and_late(self, frame: DataFrame) -> tuple[list[Row], list[Row]]:
        """Collects the rows of `rows_in` and those of `late_rows` with one query. `frame` is a small table."""
        rows = frame.where(self._is_inside() | self._is_late()).withColumn("_late", self._is_late()).collect()
        return [row for row in rows if not row["_late"]], [row for row in rows if row["_late"]]


def _read_after(lake: Lake, tso: int | None, batch: int, last_batch: int) -> DataFrame:
    """The row changes after the TSO, or if that is None, of the batches above `batch`. In both cases up to `last_batch`."""
    if tso is None:
        return lake.read_batches("change_log", batch + 1, last_batch)
    above = {"commit_ts": tso, "es": tso >> TSO_SHIFT}
    return lake.read_batches("change_log", 0, last_batch, above).where(~_is_up_to(tso))


def _unpaired_halves(log: DataFrame, batch_id: int) -> DataFrame:
    """The changes of a batch that are the first half of a split UPDATE whose second half is not in the batch."""
    updates = log.where((F.col("batch_id") == batch_id) & _is_update_half())
    names = ["database", "table", *source_columns(log), "commit_ts"]
    seconds = updates.where(F.col("before").isNull()).select(*names)
    return updates.where(F.col("after").isNull()).join(seconds, names, "left_anti").select(*log.columns)


def _is_update_half() -> Column:
    """Whether a change is one half of an UPDATE that DataWorks sent as two records."""
    one_image = F.col("before").isNull() | F.col("after").isNull()
    return has_trait(Trait.SPLITS_UPDATES) & (F.col("op") == "UPDATE") & one_image


def _is_at_or_before(tso: int) -> Column:
    """Whether a change happened at or before the TSO."""
    return _without_skipping(_is_up_to(tso))


def _is_after(tso: int) -> Column:
    """Whether a change happened after the TSO."""
    return ((F.col("commit_ts") > tso) | has_trait(Trait.NUMBERS_CHANGES)) & _without_skipping(~_is_up_to(tso))


def _is_up_to(tso: int) -> Column:
    """`es` is the time of DataWorks changes: their `commit_ts` is a sequence number."""
    numbered = has_trait(Trait.NUMBERS_CHANGES)
    in_time = numbered & is_at_most("es", tso >> TSO_SHIFT)
    return in_time | (~numbered & is_at_most("commit_ts", tso))


def _without_skipping(condition: Column) -> Column:
    """The condition, FALSE for NULL, hidden from Delta's data skipping.

    Delta would derive a condition on file statistics from it, which takes longer to compile than it saves. Callers add a
    simpler condition that skips files.
    """
    return F.coalesce(condition, F.lit(False))


def next_window(published: PublishedCut, streams: StreamProgress, *, always: bool = False) -> Window | None:
    """The window of the next cut. If the streams are complete no further than the published cut: None, or with `always` an
    empty window."""
    tso, batch = published.resolved_tso, published.last_batch
    is_new = streams.last_batch > batch and (streams.resolved_tso is not None or not streams.has_tsos)
    # the resolved TSO never decreases: a restarted changefeed resends older watermarks
    if is_new and (streams.resolved_tso is None or tso is None or streams.resolved_tso > tso):
        return Window(published.cut_id + 1, tso, streams.resolved_tso, batch, streams.last_batch)
    return Window(published.cut_id + 1, tso, tso, batch, batch) if always else None


def pending_changes(published: PublishedCut, streams: StreamProgress, lake: Lake) -> int:
    """The number of pending row changes if there is no new cut."""
    if not streams.has_tsos or not streams.new_row_changes:
        return published.pending
    rows = _read_after(lake, published.resolved_tso, published.last_batch, streams.last_batch)
    return rows.count() + published.held_rows
