"""Changes that come at or below a resolved TSO that the mirrors have applied.

A watermark says that all changes up to it were sent before. One that comes after it is a re-delivery, which changes
nothing, where the change log has it already. Else it depends:

- Below the watermark the stream has broken its word (DESIGN §2, promise 4): the change is kept in the change log, the mirror
  is marked, and a check fails. The mirror is not touched: what the change did may have been overwritten since; a rebuild
  takes it in where it belongs.
- At the very TSO of the watermark the document promises nothing: "all Events with commitTs less than watermarkTs have been
  sent" (ticdc-canal-json, "WATERMARK Event"). The change is taken in, unless a statement of that TSO has changed its table
  since.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.changes.row_filters import of_tables
from cdc_pipeline.mysql.model.table import TableName

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark.sql import Column, DataFrame

    from cdc_pipeline.mirrors.changes.window import Window

_CHANGE = ("database", "table", "commit_ts", "op", "row_identity")


@dataclass(frozen=True)
class Breach:
    """Changes of one table that came too late and were never seen before: how many, and where the first one is."""

    name: TableName
    changes: int
    topic: str
    partition: int
    offset: int

    @property
    def gap(self) -> Gap:
        """The gap that the mirror has from it."""
        words = (
            f"{self.changes} change(s) came after the mirrors had passed their time, the first at "
            f"{self.topic}/{self.partition}@{self.offset}: a rebuild takes them in"
        )
        return Gap(GapKind.LATE_CHANGES, words)


@dataclass(frozen=True)
class LateChanges:
    """The late changes of a cut: how many there are, and the breaches among them by table; the others are re-deliveries.
    `at_watermark`: beside them there are changes at the very watermark that were never seen before (`rows_at_watermark`).
    """

    changes: int
    breaches: tuple[Breach, ...]
    at_watermark: bool = False

    @property
    def unseen(self) -> int:
        return sum(breach.changes for breach in self.breaches)


def late_changes(window: Window, log: DataFrame, altered: Callable[[], Collection[TableName]] = tuple) -> LateChanges:
    """What of the new batches is late, told apart by what the batches before them have. `altered` gives the tables that
    statements of earlier cuts have changed at the very watermark.
    """
    if window.after_tso is None:
        return LateChanges(0, ())
    late = window.late(log)
    at_watermark = F.count_if(window.at_watermark()).alias("at_watermark")
    span = F.min("commit_ts").alias("first"), F.max("commit_ts").alias("last")
    counts = late.agg(F.count("*").alias("changes"), at_watermark, *span).first()
    assert counts is not None
    if not counts["changes"]:
        return LateChanges(0, ())
    taken, unseen = 0, _unseen(window, log, late, counts["first"], counts["last"])
    if counts["at_watermark"]:
        among = window.at_watermark() & ~of_tables(altered())
        taken, unseen = unseen.where(among).count(), unseen.where(~among)
    return LateChanges(counts["changes"] - taken, _breaches(unseen), bool(taken))


def rows_at_watermark(window: Window, log: DataFrame, altered: Collection[TableName]) -> DataFrame:
    """The rows of the change log at the very watermark that came after it and were never seen before, but those of
    tables that statements of earlier cuts have altered there."""
    assert window.after_tso is not None
    late = window.late(log).where(window.at_watermark() & ~of_tables(altered))
    return _unseen(window, log, late, window.after_tso, window.after_tso).select(*log.columns)


def _unseen(window: Window, log: DataFrame, late: DataFrame, first: int, last: int) -> DataFrame:
    """Those of the late changes, which lie from `first` to `last`, that the batches before do not have. A change is known
    where one of the same table, commit TSO, op and row (by the key that its message names, else by all of it) is in the
    log: its other columns may be sent in another form after an upgrade of the encoder."""
    late = late.withColumn("row_identity", _row_identity())
    known = log.where((F.col("batch_id") <= window.after_batch) & F.col("commit_ts").between(first, last))
    known = known.select(*_CHANGE[:-1], _row_identity().alias("row_identity")).distinct()
    return late.join(known, list(_CHANGE), "left_anti")


def _breaches(unseen: DataFrame) -> tuple[Breach, ...]:
    rows = (
        unseen.groupBy("database", "table")
        .agg(F.count("*").alias("changes"), F.min(F.struct("batch_id", "topic", "partition", "offset")).alias("first"))
        .orderBy("database", "table")
        .collect()
    )
    return tuple(
        Breach(TableName(row["database"], row["table"]), row["changes"], *tuple(row["first"])[1:]) for row in rows
    )


def _row_identity() -> Column:
    """The texts of the key's columns where the message names a key, else the whole image."""
    image = F.coalesce("after", "before")
    named = F.coalesce(F.size("key_names"), F.lit(0)) > 0
    key = F.map_filter(image, lambda name, _: F.array_contains("key_names", name))
    return F.to_json(F.array_sort(F.map_entries(F.when(named, key).otherwise(image))))
