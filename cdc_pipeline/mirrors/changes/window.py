"""What a cut takes in: the rows and DDL between the last published cut and the newest complete point of the streams.

The window is written down with the plan (`stored_plan`) before any mirror is touched.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, has_trait
from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.mirrors.changes.row_filters import clock_ts, not_older
from cdc_pipeline.mirrors.model.shards import ShardName, source_columns
from cdc_pipeline.spark.folded import folded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, Row

    from cdc_pipeline.mirrors.changes.late_ddl import ComesAgain
    from cdc_pipeline.mirrors.changes.progress import PublishedCut, StreamProgress
    from cdc_pipeline.mysql.model.table import TableName

_POSITION = ("topic", "partition", "offset")


@dataclass(frozen=True)
class Window:
    """Rows with `after_tso < commit_ts <= resolved_tso` of batches up to `last_batch`; where there are no watermarks
    (`resolved_tso` None) all rows of the batches above `after_batch`."""

    cut_id: int
    after_tso: int | None
    resolved_tso: int | None
    after_batch: int
    last_batch: int

    def of(self, frame: DataFrame) -> DataFrame:
        """The rows of `change_log` or `ddl_history` that this cut takes in."""
        return frame.where(self._inside())

    def _inside(self) -> Column:
        decoded = F.col("batch_id") <= self.last_batch
        if self.resolved_tso is None:
            return decoded & (F.col("batch_id") > self.after_batch)
        inside = decoded & _at_or_below(self.resolved_tso)
        return inside if self.after_tso is None else inside & _later(self.after_tso)

    def changes(
        self,
        log: DataFrame,
        *,
        waited: bool,
        again: Mapping[TableName | ShardName, ComesAgain],
        also: DataFrame | None = None,
    ) -> DataFrame:
        """The row changes that this cut works on, with `fresh`, whether this cut lets them in, and `taken`, whether an
        earlier cut has taken them in.

        Fresh ones are those of `of`, but for first halves of an UPDATE whose second is not there yet: DataWorks may send
        an UPDATE as two records, and alone the first would take the row away; no upstream ever had such a table. Where
        there are no watermarks, changes of earlier cuts come along that are not older than the oldest fresh one: what
        arrives late must neither undo them nor be counted twice. `waited`: whether the cut before left changes waiting;
        `again` are tables of which rows come along from then on; `also` are rows of the log that this cut takes in beside
        its own.
        """
        inside = self.of(log) if also is None else self.of(log).unionByName(also)
        if self.resolved_tso is not None:
            return inside.withColumns({"fresh": F.lit(True), "taken": F.lit(False)})
        before = log.where(F.col("batch_id") <= self.after_batch)
        if waited:
            halves = _first_halves(log, self.after_batch)
            inside = inside.unionByName(halves)
            before = before.join(F.broadcast(halves.select(*_POSITION)), list(_POSITION), "left_anti")
        found = inside.agg(
            F.min("commit_ts").alias("oldest"), F.max(_is_half()).alias("halves"), F.min(clock_ts()).alias("ts")
        ).first()
        assert found is not None
        if found["halves"]:
            waiting = _first_halves(log, self.last_batch).select(*_POSITION)
            inside = inside.join(F.broadcast(waiting), list(_POSITION), "left_anti")
        fresh = inside.withColumns({"fresh": F.lit(True), "taken": F.lit(False)})
        if self.after_batch == 0 or (found["oldest"] is None and not again):
            return fresh
        of_tables = [since.of_rows(name) for name, since in again.items()]
        along = folded(operator.or_, [not_older(found["oldest"], found["ts"]), *of_tables], F.lit(False))
        shards = [since.of_rows(name) for name, since in again.items() if isinstance(name, ShardName)]
        # of the tables of merged mirrors all come again
        anew = folded(operator.or_, shards, F.lit(False))
        return fresh.unionByName(before.where(along).withColumns({"fresh": anew, "taken": F.lit(True)}))

    def before(self, frame: DataFrame) -> DataFrame:
        """The rows that earlier cuts have passed."""
        inside = frame.where(F.col("batch_id") <= self.after_batch)
        return inside if self.after_tso is None else inside.where(_at_or_below(self.after_tso))

    def late(self, frame: DataFrame) -> DataFrame:
        """New rows at or below a TSO that is applied already: see `mirrors.changes.late_changes`."""
        return frame.where(self._too_late())

    def at_watermark(self) -> Column:
        """Whether a late change or statement happened at the very TSO that is applied. `commit_ts` of DataWorks is none."""
        return (F.col("commit_ts") == F.lit(self.after_tso)) & ~has_trait(Trait.NUMBERS_CHANGES)

    def _too_late(self) -> Column:
        if self.after_tso is None:
            return F.lit(False)
        return F.col("batch_id").between(self.after_batch + 1, self.last_batch) & _at_or_below(self.after_tso)

    def taken_and_late(self, frame: DataFrame) -> tuple[list[Row], list[Row]]:
        """The rows of `of` and of `late`, of a table of few rows, by one query."""
        rows = frame.where(self._inside() | self._too_late()).withColumn("_late", self._too_late()).collect()
        return [row for row in rows if not row["_late"]], [row for row in rows if row["_late"]]

    def pending(self, frame: DataFrame) -> DataFrame:
        """Row changes of the batches so far that wait for a later cut."""
        if self.resolved_tso is None:
            return _first_halves(frame, self.last_batch)
        return frame.where((F.col("batch_id") <= self.last_batch) & _later(self.resolved_tso))


def _first_halves(log: DataFrame, batch_id: int) -> DataFrame:
    """The changes of a batch that are the first half of an UPDATE, the second of which is not in the batch."""
    updates = log.where((F.col("batch_id") == batch_id) & _is_half())
    names = ["database", "table", *source_columns(log), "commit_ts"]
    seconds = updates.where(F.col("before").isNull()).select(*names)
    return updates.where(F.col("after").isNull()).join(seconds, names, "left_anti").select(*log.columns)


def _is_half() -> Column:
    """Whether a change is one of the two that an UPDATE of DataWorks may come as."""
    one_image = F.col("before").isNull() | F.col("after").isNull()
    return has_trait(Trait.SPLITS_UPDATES) & (F.col("op") == "UPDATE") & one_image


def _at_or_below(tso: int) -> Column:
    """Whether a change happened at or before the TSO."""
    return _for_rows(_in_time(tso))


def _later(tso: int) -> Column:
    """Whether a change happened after the TSO."""
    return ((F.col("commit_ts") > tso) | has_trait(Trait.NUMBERS_CHANGES)) & _for_rows(~_in_time(tso))


def _in_time(tso: int) -> Column:
    """`commit_ts` of DataWorks is an order, its time is `es`."""
    numbered = has_trait(Trait.NUMBERS_CHANGES)
    in_time = numbered & (F.col("es") <= tso >> TSO_SHIFT)
    return in_time | (~numbered & (F.col("commit_ts") <= tso))


def _for_rows(condition: Column) -> Column:
    """The condition, false where it is null, as one that Delta does not look into.

    Of those that it understands Delta makes others over the files' statistics, and this one's would take longer to compile
    than they could save: what files may be left out by is said beside it.
    """
    return F.coalesce(condition, F.lit(False))


def next_window(published: PublishedCut, streams: StreamProgress, *, returning: bool = False) -> Window | None:
    """The window of the next cut; None where the streams have nothing complete beyond the published one.

    `returning`: tables that have waited go on, so that there is a cut even if nothing new has come.
    """
    return _window_of_new(published, streams) or (_empty_window(published) if returning else None)


def _empty_window(published: PublishedCut) -> Window:
    tso, batch = published.resolved_tso, published.last_batch
    return Window(published.cut_id + 1, after_tso=tso, resolved_tso=tso, after_batch=batch, last_batch=batch)


def _window_of_new(published: PublishedCut, streams: StreamProgress) -> Window | None:
    if streams.exact and streams.resolved_tso is None:
        return None
    nothing_new = streams.last_batch <= published.last_batch
    # A resolved TSO never steps back: an older watermark after a restart of the changefeed is a repetition.
    if nothing_new or (
        streams.resolved_tso is not None
        and published.resolved_tso is not None
        and streams.resolved_tso <= published.resolved_tso
    ):
        return None
    return Window(
        cut_id=published.cut_id + 1,
        after_tso=published.resolved_tso,
        resolved_tso=streams.resolved_tso,
        after_batch=published.last_batch,
        last_batch=streams.last_batch,
    )


def pending_after(published: PublishedCut, streams: StreamProgress, log: DataFrame) -> int:
    """The row changes that wait while there is no new cut."""
    if not streams.exact:
        return published.pending
    inside = log.where(F.col("batch_id") <= streams.last_batch)
    if published.resolved_tso is not None:
        inside = inside.where(_later(published.resolved_tso))
    return inside.count() + published.held_rows
