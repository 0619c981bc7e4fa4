"""Late changes: row changes at or below a resolved TSO that the mirrors have applied.

A watermark states that all changes up to it were sent. A later one of these is a redelivery, with no effect, if
`change_log` has it already. Otherwise:

- Below the applied TSO the stream broke its guarantee (DESIGN §2, promise 4). The change stays in `change_log`, the mirror
  gets a gap, and a check fails. The mirror does not change, because later changes may have overwritten the row. A rebuild
  applies the change in order.
- At exactly the applied TSO the format guarantees nothing: "all Events with commitTs less than watermarkTs have been sent"
  (ticdc-canal-json, "WATERMARK Event"). The change is applied, unless a statement with that TSO has altered its table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.changes.row_filters import is_in_tables
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import BATCH_POSITION, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark.sql import Column, DataFrame

    from cdc_pipeline.lake.tables.batches import ChangeSpan
    from cdc_pipeline.mirrors.changes.window import Window

_CHANGE = ("database", "table", "commit_ts", "op", "row_identity")


@dataclass(frozen=True)
class Breach:
    """Late changes of one table that are no redeliveries. The position is that of the first one."""

    name: TableName
    changes: int
    """How many there are."""
    topic: str
    partition: int
    offset: int

    @property
    def gap(self) -> Gap:
        """The gap that the mirror gets."""
        message = (
            f"{self.changes} change(s) arrived after the mirror had passed their commit TSO, the first at "
            f"{Position(self.topic, self.partition, self.offset)}; a rebuild applies them"
        )
        return Gap(GapKind.LATE_CHANGES, message)


@dataclass(frozen=True)
class LateChanges:
    """The late changes of a cut, without those of `rows_at_watermark`."""

    changes: int
    """How many there are: breaches and redeliveries."""
    breaches: tuple[Breach, ...]
    """One per table."""
    at_watermark: bool = False
    """Whether there are `rows_at_watermark`."""

    @property
    def new_changes(self) -> int:
        """The number of late changes that are no redeliveries."""
        return sum(breach.changes for breach in self.breaches)


def late_changes(
    window: Window, log: DataFrame, span: ChangeSpan | None, altered: Callable[[], Collection[TableName]] = tuple
) -> LateChanges:
    """Counts the late changes of the new batches, whose changes have this span. `altered` returns the tables that statements
    with exactly the applied TSO altered in earlier cuts."""
    if window.after_tso is None or span is None or span.oldest > window.after_tso:
        return LateChanges(0, ())
    late = window.late_rows(log)
    at_watermark = F.count_if(window.is_at_watermark()).alias("at_watermark")
    times = F.min("commit_ts").alias("first"), F.max("commit_ts").alias("last")
    counts = late.agg(F.count("*").alias("changes"), at_watermark, *times).first()
    assert counts is not None
    if not counts["changes"]:
        return LateChanges(0, ())
    applied, unseen = 0, _unseen(window, log, late, counts["first"], counts["last"])
    if counts["at_watermark"]:
        is_applied = window.is_at_watermark() & ~is_in_tables(altered())
        applied, unseen = unseen.where(is_applied).count(), unseen.where(~is_applied)
    return LateChanges(counts["changes"] - applied, _breaches(unseen), bool(applied))


def rows_at_watermark(window: Window, log: DataFrame, altered: Collection[TableName]) -> DataFrame:
    """The late rows of `log` with exactly the applied TSO that are no redeliveries, without those of the tables `altered` by
    statements with that TSO in earlier cuts."""
    assert window.after_tso is not None
    late = window.late_rows(log).where(window.is_at_watermark() & ~is_in_tables(altered))
    return _unseen(window, log, late, window.after_tso, window.after_tso).select(*log.columns)


def _unseen(window: Window, log: DataFrame, late: DataFrame, first: int, last: int) -> DataFrame:
    """The late changes that the batches before do not have. `first` and `last` are their lowest and highest `commit_ts`.

    Changes are equal by table, commit TSO, op and row. A row is compared by the key that its message names, else as a
    whole: an upgraded encoder may send other columns in another form.
    """
    late = late.withColumn("row_identity", _row_identity())
    known = log.where((F.col("batch_id") <= window.after_batch) & F.col("commit_ts").between(first, last))
    known = known.select(*_CHANGE[:-1], _row_identity().alias("row_identity")).distinct()
    return late.join(known, list(_CHANGE), "left_anti")


def _breaches(unseen: DataFrame) -> tuple[Breach, ...]:
    rows = (
        unseen.groupBy("database", "table")
        .agg(F.count("*").alias("changes"), F.min(F.struct(*BATCH_POSITION)).alias("first"))
        .orderBy("database", "table")
        .collect()
    )
    return tuple(
        Breach(TableName(row["database"], row["table"]), row["changes"], *tuple(row["first"])[1:]) for row in rows
    )


def _row_identity() -> Column:
    """The values of the key if the message names one, else the whole image, as JSON."""
    image = F.coalesce("after", "before")
    named = F.coalesce(F.size("key_names"), F.lit(0)) > 0
    key = F.map_filter(image, lambda name, _: F.array_contains("key_names", name))
    return F.to_json(F.array_sort(F.map_entries(F.when(named, key).otherwise(image))))
