"""What a cut takes in: the rows and DDL between the last published cut and the newest complete point of the streams.

The window is written down (`cut_plans`) before any mirror is touched, with the mirrors as they were, so that a run
that is killed half-way is followed by one that makes the very same plan and finishes it.
"""

from __future__ import annotations

import json
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.canal import CANAL
from cdc_pipeline.dialects.dataworks import NAME as DATAWORKS
from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.mirrors.column_rules import ColumnRules
from cdc_pipeline.mirrors.ended import EndedTable
from cdc_pipeline.mirrors.selection import TableSelection
from cdc_pipeline.mirrors.shards import ShardName, source_columns
from cdc_pipeline.mirrors.state import MirrorState
from cdc_pipeline.resources.delta import Commit, append_once, progress
from cdc_pipeline.resources.folded import folded
from cdc_pipeline.resources.small_frames import small_frame
from cdc_pipeline.schemas.table import TableName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, Row, SparkSession

    from cdc_pipeline.mirrors.late_statements import ComesAgain
    from cdc_pipeline.mirrors.policy import StatementPosition
    from cdc_pipeline.mirrors.progress import PublishedCut, StreamProgress
    from cdc_pipeline.resources.lake import LakePaths

_POSITION = ("topic", "partition", "offset")
_PLAN = (
    "cut_id BIGINT, after_tso BIGINT, resolved_tso BIGINT, after_batch BIGINT, last_batch BIGINT, run_id STRING, "
    "inputs STRING"
)


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
        canal = F.when(F.col("dialect") == CANAL.name, F.col("ts"))
        found = inside.agg(
            F.min("commit_ts").alias("oldest"), F.max(_is_half()).alias("halves"), F.min(canal).alias("oldest_of_canal")
        ).first()
        assert found is not None
        if found["halves"]:
            waiting = _first_halves(log, self.last_batch).select(*_POSITION)
            inside = inside.join(F.broadcast(waiting), list(_POSITION), "left_anti")
        fresh = inside.withColumns({"fresh": F.lit(True), "taken": F.lit(False)})
        if self.after_batch == 0 or (found["oldest"] is None and not again):
            return fresh
        along = folded(operator.or_, [since.of_rows(name) for name, since in again.items()], F.lit(False))
        shards = [since.of_rows(name) for name, since in again.items() if isinstance(name, ShardName)]
        if found["oldest"] is not None:
            along |= F.col("commit_ts") >= found["oldest"]
        if found["oldest_of_canal"] is not None:
            # between partitions Canal's clock orders, and `es` may say otherwise
            along |= (F.col("dialect") == CANAL.name) & (F.col("ts") >= found["oldest_of_canal"])
        # of the tables of merged mirrors all come again
        anew = folded(operator.or_, shards, F.lit(False))
        return fresh.unionByName(before.where(along).withColumns({"fresh": anew, "taken": F.lit(True)}))

    def before(self, frame: DataFrame) -> DataFrame:
        """The rows that earlier cuts have passed."""
        inside = frame.where(F.col("batch_id") <= self.after_batch)
        return inside if self.after_tso is None else inside.where(_at_or_below(self.after_tso))

    def late(self, frame: DataFrame) -> DataFrame:
        """New rows at or below a TSO that is applied already: see `mirrors.late`."""
        return frame.where(self._too_late())

    def at_watermark(self) -> Column:
        """Whether a late change or statement happened at the very TSO that is applied. `commit_ts` of DataWorks is none."""
        return (F.col("commit_ts") == F.lit(self.after_tso)) & (F.col("dialect") != DATAWORKS)

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
    return (F.col("dialect") == DATAWORKS) & (F.col("op") == "UPDATE") & one_image


def _at_or_below(tso: int) -> Column:
    """Whether a change happened at or before the TSO."""
    return _for_rows(_in_time(tso))


def _later(tso: int) -> Column:
    """Whether a change happened after the TSO."""
    return ((F.col("commit_ts") > tso) | (F.col("dialect") == DATAWORKS)) & _for_rows(~_in_time(tso))


def _in_time(tso: int) -> Column:
    """`commit_ts` of DataWorks is an order, its time is `es`."""
    dataworks = F.col("dialect") == DATAWORKS
    in_time = dataworks & (F.col("es") <= tso >> TSO_SHIFT)
    return in_time | (~dataworks & (F.col("commit_ts") <= tso))


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


@dataclass(frozen=True)
class BegunCut:
    """A cut that was begun and not published: its window, the mirrors as they were then, the tables that had ended by
    then (by database), the statements that were approved by then, and the selection and the rules for columns that it is
    made with."""

    window: Window
    mirrors: dict[TableName, MirrorState | None]
    ended: dict[str, tuple[EndedTable, ...]]
    approved: frozenset[StatementPosition]
    selection: TableSelection
    columns: ColumnRules


def is_begun(spark: SparkSession, paths: LakePaths, published: PublishedCut) -> bool:
    """Whether an earlier run has begun a cut and not published it."""
    return (progress(spark, paths.table("cut_plans"), paths.writer("cut_plans")) or 0) > published.cut_id


def begun_cut(spark: SparkSession, paths: LakePaths, published: PublishedCut, salt: str = "") -> BegunCut | None:
    """The cut that an earlier run has begun and not published. `salt` is that of masked values: raises MaskSaltError where
    it was begun with another."""
    if not is_begun(spark, paths, published):
        return None
    path = paths.table("cut_plans")
    row = spark.read.format("delta").load(path).where(F.col("cut_id") == published.cut_id + 1).first()
    if row is None:
        return None
    window = Window(row["cut_id"], row["after_tso"], row["resolved_tso"], row["after_batch"], row["last_batch"])
    inputs = json.loads(row["inputs"])
    mirrors = {
        TableName(database, table): None if properties is None else MirrorState.from_properties(properties)
        for database, table, properties in inputs["mirrors"]
    }
    ended = {
        database: tuple(EndedTable.from_plain(plain) for plain in tables)
        for database, tables in inputs["ended"].items()
    }
    approved = frozenset((topic, partition, offset) for topic, partition, offset in inputs["approved"])
    columns = ColumnRules.from_plain(inputs["columns"], salt) if "columns" in inputs else ColumnRules()
    return BegunCut(window, mirrors, ended, approved, TableSelection.from_json(inputs["selection"]), columns)


def write_down(spark: SparkSession, paths: LakePaths, begun: BegunCut, run_id: str) -> None:
    """Records the begun cut. Two runs at once: the second finds it written and goes by the first one's."""
    window = begun.window
    inputs = {
        "mirrors": [
            [name.database, name.table, None if state is None else state.properties()]
            for name, state in sorted(begun.mirrors.items())
        ],
        "ended": {database: [table.as_plain() for table in tables] for database, tables in sorted(begun.ended.items())},
        "approved": sorted(begun.approved),
        "selection": begun.selection.to_json(),
        "columns": begun.columns.as_plain(),
    }
    row = (
        window.cut_id,
        window.after_tso,
        window.resolved_tso,
        window.after_batch,
        window.last_batch,
        run_id,
        json.dumps(inputs, ensure_ascii=False),
    )
    frame = small_frame(spark, [row], _PLAN)
    commit = Commit(paths.writer("cut_plans"), window.cut_id, {"cut": window.cut_id, "run_id": run_id})
    append_once(frame, paths.table("cut_plans"), commit)
