"""The window of a cut: the row changes and statements from the end of the cut before to its own.

The window is stored with the plan (`stored_plan`) before the cut changes any mirror.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.model.ddl_events import BASELINE_TOPIC


@dataclass(frozen=True)
class Window:
    """Rows of batches up to `last_batch` whose `at` is at or after the end of the cut before, and below its own.

    With watermarks an end is a TSO. Without them each topic has an end of its own, because the hosts that write them have
    clocks of their own.
    """

    cut_id: int
    after_tso: int | None
    """The end of the cut before with watermarks, its resolved TSO."""
    resolved_tso: int | None
    """The end of the cut with watermarks: the lowest of the partitions' newest ones."""
    after_batch: int
    last_batch: int
    after: Mapping[str, int] = field(default_factory=dict)
    """Topic → end of the cut before, without watermarks. A topic that is not listed has no lower end."""
    before: Mapping[str, int] = field(default_factory=dict)
    """Topic → end of the cut, without watermarks."""

    def rows_in(self, frame: DataFrame) -> DataFrame:
        """The rows of `change_log` or `ddl_history` in this window."""
        return frame.where(self._is_inside())

    def _is_inside(self) -> Column:
        return (F.col("batch_id") <= self.last_batch) & self._is_below_end() & ~self._is_applied()

    def _is_below_end(self) -> Column:
        return is_below(self.resolved_tso, self.before)

    def _is_applied(self) -> Column:
        return is_below(self.after_tso, self.after)

    def read_changes(self, lake: Lake) -> DataFrame:
        """`rows_in` of `change_log`."""
        return self.rows_in(read_unapplied(lake, self.after_tso, self.after, self.after_batch, self.last_batch))

    def read_pending(self, lake: Lake) -> DataFrame:
        """The row changes of the batches so far that a later cut will apply."""
        rows = read_unapplied(lake, self.resolved_tso, self.before, self.last_batch, self.last_batch)
        return rows.where(~self._is_below_end())

    def rows_before(self, frame: DataFrame) -> DataFrame:
        """The rows up to the end of the cut before."""
        return frame.where((F.col("batch_id") <= self.after_batch) & self._is_applied())

    def late_rows(self, frame: DataFrame) -> DataFrame:
        """New rows that belong to earlier cuts: see `mirrors.changes.late_changes`."""
        return frame.where(self._is_late())

    def _is_late(self) -> Column:
        return F.col("batch_id").between(self.after_batch + 1, self.last_batch) & self._is_applied()

    def collect_new_and_late(self, frame: DataFrame) -> tuple[list[Row], list[Row]]:
        """Collects the rows of `rows_in` and those of `late_rows` with one query. `frame` is a small table."""
        rows = frame.where(self._is_inside() | self._is_late()).withColumn("_late", self._is_late()).collect()
        return [row for row in rows if not row["_late"]], [row for row in rows if row["_late"]]


def is_below(tso: int | None, ends: Mapping[str, int]) -> Column:
    """Whether a row lies before the end of a cut: the TSO, or the end of its topic. False without an end.

    A baseline has no topic with an end: the first cut has it, or a rebuild, which begins with no cut.
    """
    if tso is not None:
        return F.col("at") < tso
    if not ends:
        return F.lit(False)
    by_topic = F.create_map(*(F.lit(item) for pair in ends.items() for item in pair))
    return F.coalesce(F.col("at") < by_topic[F.col("topic")], is_of_baseline())


def is_of_baseline() -> Column:
    """Whether a row of `ddl_history` is the event of a baseline."""
    return F.col("topic").startswith(BASELINE_TOPIC)


def read_unapplied(lake: Lake, tso: int | None, ends: Mapping[str, int], batch: int, last_batch: int) -> DataFrame:
    """The row changes of batches up to `last_batch`, at least those that are not below the ends of a cut with `batch`, and
    those of later batches."""
    if tso is None and not ends:
        return lake.read_batches("change_log", 1, last_batch)
    lowest = min(ends.values()) if tso is None else tso
    return lake.read_batches("change_log", 0, last_batch, {"at": lowest - 1, "batch_id": batch})
