"""The row changes of a cut: which ones it applies, and the segment of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from cdc_pipeline.mirrors.changes.late_changes import rows_at_watermark
from cdc_pipeline.mirrors.changes.late_ddl import Replay, with_replayed_rows
from cdc_pipeline.mirrors.changes.rebased_rows import rebase_gaps, rebased_changes
from cdc_pipeline.mirrors.changes.redeliveries import Redeliveries
from cdc_pipeline.mirrors.changes.segments import NO_EVIDENCE, Evidence, find_evidence, with_segments, without_emptied
from cdc_pipeline.mirrors.deliveries.copies import ROW_POSITION
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.model.source_tables import SourceTableName
from cdc_pipeline.mysql.model.table import TableName

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pyspark.sql import DataFrame

    from cdc_pipeline.dialects.message_types import MessageTypes
    from cdc_pipeline.gaps import Gap
    from cdc_pipeline.mirrors.changes.segments import UnknownOrder
    from cdc_pipeline.mirrors.changes.window import Window
    from cdc_pipeline.positions import BatchPosition


@dataclass(frozen=True)
class RowSelection:
    """Which row changes a cut applies, and the segment of each, beside its window and its selection.

    Stored with the plan, so that a resumed run applies the same rows in the same steps.
    """

    events: tuple[DdlEvent, ...] = ()
    """The statements that divide each table's rows into segments, in stream order."""
    replayed: tuple[tuple[TableName | SourceTableName, Replay], ...] = ()
    """The tables whose rows of earlier cuts are replayed (`late_ddl`)."""
    past_events: tuple[DdlEvent, ...] = ()
    """The statements of earlier cuts that some rows may precede (`rebased_rows`)."""
    evidence: Evidence = NO_EVIDENCE
    """The segments of rows whose position leaves them open, for `events`."""
    past_evidence: Evidence = NO_EVIDENCE
    """The same for `past_events`."""
    at_watermark: bool = False
    """Whether late rows with exactly the applied TSO are applied."""
    altered: tuple[TableName, ...] = ()
    """Tables that a statement with that TSO altered: their late rows are not applied."""
    keyless: tuple[TableName, ...] = ()
    """Tables whose mirrors have no key though their messages name one."""


class SegmentLookup(Protocol):
    """What planning looks up to place rows. A resumed run needs none of it: `RowSelection` has the results."""

    def past_events(self, delivered: DataFrame) -> Sequence[DdlEvent]:
        """Returns the statements of earlier cuts that some of the rows may precede."""

    def is_known(self, name: TableName) -> bool:
        """Whether the table existed before the cut."""

    def types_of(self, places: Mapping[BatchPosition, str]) -> Mapping[BatchPosition, MessageTypes]:
        """Returns the column types that the messages at these positions name. `places` maps each to its dialect."""


class CutRows:
    """The row changes of a cut. Caches DataFrames until `close`.

    - `delivered`: the row changes that the cut reads, with `is_new` and `applied_before` (`Window.changes`)
    - `redelivered`: the positions (`ROW_POSITION`) of the redelivered ones; None if there are none
    - `changes`: the others, with `segment`
    - `selection`: the given selection, with the evidence that planning found
    - `doubts`: the rows whose order against a statement is unknown; set by planning only
    - `gaps`: of tables with rows that are too late or may be redelivered; set by planning only

    `log` is `change_log` with the names of mirrors, `inside` its rows in the window. `table` loads another table of the
    pipeline. `had_pending`: the cut before left changes pending. `lookup`: given while planning.
    """

    def __init__(
        self,
        window: Window,
        selection: RowSelection,
        log: DataFrame,
        inside: DataFrame,
        table: Callable[[str], DataFrame],
        *,
        had_pending: bool,
        lookup: SegmentLookup | None = None,
    ) -> None:
        self._window, self._log, self._table = window, log, table
        self._planning = lookup is not None
        self.selection = selection
        self.doubts: tuple[UnknownOrder, ...] = ()
        self.gaps: dict[TableName, tuple[Gap, ...]] = {}
        late = rows_at_watermark(window, log, selection.altered) if selection.at_watermark else None
        delivered = window.changes(log, inside, had_pending=had_pending, replayed=dict(selection.replayed), late=late)
        self.delivered = delivered.persist()
        self._cached: list[DataFrame] = []
        self.redelivered: DataFrame | None = None
        try:
            self.changes = self._with_segments(self._without_redelivered(self.delivered), lookup)
            if selection.keyless:
                self.drop_redelivered(selection.keyless)
        except BaseException:
            self.close()
            raise

    def _without_redelivered(self, changes: DataFrame, tables: Collection[TableName] = ()) -> DataFrame:
        redeliveries = Redeliveries(changes, self._log, self._table, self._window, self.selection.events, tables)
        repeated = redeliveries.positions
        if repeated is None:
            return changes
        if self._planning:
            for name, gap in redeliveries.gaps.items():
                self.gaps[name] = (*self.gaps.get(name, ()), gap)
        self._cached.append(repeated.persist())
        self.redelivered = repeated if self.redelivered is None else self.redelivered.unionByName(repeated)
        return changes.join(repeated, list(ROW_POSITION), "left_anti")

    def _with_segments(self, changes: DataFrame, lookup: SegmentLookup | None) -> DataFrame:
        selection = self.selection
        if lookup is not None:
            selection = replace(selection, past_events=tuple(lookup.past_events(self.delivered)))
        remaining = without_emptied(changes, selection.past_events)
        if lookup is not None:
            # only the statements themselves show whether a table existed before them
            evidence, doubts = find_evidence(remaining, selection.past_events, lambda name: False, lookup.types_of)
            selection = replace(selection, past_evidence=evidence)
            for name, gaps in rebase_gaps(remaining, selection.past_events, evidence, doubts, lookup.types_of).items():
                self.gaps[name] = (*self.gaps.get(name, ()), *gaps)
        rebased = rebased_changes(remaining, selection.past_events, selection.past_evidence)
        if lookup is not None:
            evidence, self.doubts = find_evidence(rebased, selection.events, lookup.is_known, lookup.types_of)
            selection = replace(selection, evidence=evidence)
        self.selection = selection
        return with_replayed_rows(
            with_segments(rebased, selection.events, selection.evidence), dict(selection.replayed)
        )

    def drop_redelivered(self, tables: Collection[TableName]) -> None:
        """Removes the redelivered rows of these tables too. Their mirrors have no key, though their messages name one."""
        self.selection = replace(self.selection, keyless=tuple(sorted(tables)))
        self.changes = self._without_redelivered(self.changes, tables)

    def close(self) -> None:
        """Frees the cached DataFrames."""
        for frame in (self.delivered, *self._cached):
            frame.unpersist()
