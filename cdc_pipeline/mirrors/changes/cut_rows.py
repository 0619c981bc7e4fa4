"""The row changes of a cut: which ones it applies, and the segment of each."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.gaps import Gap
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.tables.batches import has_keyless_rows
from cdc_pipeline.mirrors.changes.copies import find_copies
from cdc_pipeline.mirrors.changes.deliveries import ROW_POSITION
from cdc_pipeline.mirrors.changes.row_groups import RowGroup, row_groups
from cdc_pipeline.mirrors.changes.segments import ColumnsOf, Evidence, find_evidence, with_segments
from cdc_pipeline.mirrors.changes.window import Window
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.settings.selection import TableSelection
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import Position
from cdc_pipeline.spark.small_frames import totals


@dataclass(frozen=True)
class RowSelection:
    """Which row changes a cut applies, and the segment of each, beside its window and its selection.

    Stored with the plan, so that a resumed run applies the same rows in the same steps.
    """

    events: tuple[DdlEvent, ...] = ()
    """The statements that divide each table's rows into segments, in stream order."""
    evidence: Evidence = ()
    """The segments of rows whose position leaves them open, for `events`."""
    keyless: tuple[TableName, ...] = ()
    """Tables whose mirrors may have no key though their messages name one."""


class CutRows:
    """The row changes of a cut. Caches DataFrames until `close`.

    - `log`: `change_log` with the names of mirrors
    - `delivered`: the row changes in the window
    - `copies`: the positions (`ROW_POSITION`) of those that were sent before; None if there are none
    - `changes`: the others, with `segment`
    - `selection`: the given selection, with the evidence that planning found
    - `doubts`: a gap for each statement whose order against some rows is unknown; set by planning only
    - `gaps`: of tables with rows that may be copies
    - `counted`: how many `delivered` has, and Kafka's timestamp of the newest; None if planning has not seen it
    - `text_bytes`: the size of the texts of `changes`; None if planning has not asked for it

    `columns_of`: given while planning.
    """

    def __init__(
        self,
        lake: Lake,
        window: Window,
        tables: TableSelection,
        selection: RowSelection,
        columns_of: ColumnsOf | None = None,
    ) -> None:
        self._window, self._lake = window, lake
        self.log = tables.selected(lake.read("change_log"))
        self.doubts: dict[Position, Gap] = {}
        self.gaps: list[tuple[TableName, Gap]] = []
        self.delivered = tables.selected(window.read_changes(lake)).persist()
        self._cached: list[DataFrame] = []
        self.copies: DataFrame | None = None
        self.counted: tuple[int, datetime | None] | None = None
        self.text_bytes: int | None = None
        try:
            changes = self._without_copies(self.delivered)
            if columns_of is not None:
                evidence, self.doubts = find_evidence(changes, selection.events, columns_of)
                selection = replace(selection, evidence=evidence)
            self.selection = selection
            self.changes = with_segments(changes, selection.events, selection.evidence)
            if selection.keyless:
                self.drop_copies(selection.keyless)
        except BaseException:
            self.close()
            raise

    def group(self, *, with_text_bytes: bool) -> list[RowGroup]:
        """`row_groups` of `changes`."""
        groups = row_groups(self.changes, with_text_bytes=with_text_bytes)
        self.text_bytes = sum(group.text_bytes for group in groups) if with_text_bytes else None
        if self.copies is None:
            newest = max((group.newest for group in groups if group.newest is not None), default=None)
            self.counted = sum(group.changes for group in groups), newest
        return groups

    def count(self) -> tuple[int, datetime | None]:
        """`counted`, if necessary by a query."""
        if self.counted is None:
            changes, newest = totals(self.delivered, F.count("*"), F.max("timestamp"))
            self.counted = changes, newest
        return self.counted

    def count_copies(self) -> int:
        """How many `delivered` were sent before."""
        if self.copies is None:
            return 0
        return self.delivered.join(self.copies, list(ROW_POSITION), "left_semi").count()

    def drop_copies(self, tables: Collection[TableName]) -> bool:
        """Removes the copies in these tables too, whose mirrors may have no key. Returns whether there are any."""
        self.selection = replace(self.selection, keyless=tuple(sorted(tables)))
        known, self.changes = self.copies, self._without_copies(self.changes, tables)
        return self.copies is not known

    def _without_copies(self, changes: DataFrame, tables: Collection[TableName] = ()) -> DataFrame:
        window = self._window
        # with TSOs only rows without a key can be copies
        if not tables and window.resolved_tso and not has_keyless_rows(self._lake, window.after_tso, window.last_batch):
            return changes
        found = find_copies(changes, self.log, self._lake.read, window, tables)
        if found is None:
            return changes
        copies, gaps = found[0].persist(), found[1]
        self._cached.append(copies)
        self.gaps += gaps.items()
        self.copies = copies if self.copies is None else self.copies.unionByName(copies)
        return changes.join(copies, list(ROW_POSITION), "left_anti")

    def close(self) -> None:
        """Frees the cached DataFrames."""
        for frame in (self.delivered, *self._cached):
            frame.unpersist()
