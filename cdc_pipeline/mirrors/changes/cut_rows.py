"""The row changes of a cut: which it takes in, and in which segment of its table each lies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from cdc_pipeline.mirrors.changes.copies import POSITION
from cdc_pipeline.mirrors.changes.held_rows import with_returned
from cdc_pipeline.mirrors.changes.late_changes import rows_at_watermark
from cdc_pipeline.mirrors.changes.late_ddl import let_in_again
from cdc_pipeline.mirrors.changes.rebased_rows import carried_changes, carried_gaps
from cdc_pipeline.mirrors.changes.redeliveries import Redeliveries
from cdc_pipeline.mirrors.changes.segments import NO_EVIDENCE, found_evidence, not_emptied, with_segments

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pyspark.sql import DataFrame

    from cdc_pipeline.dialects.message_types import MessageTypes
    from cdc_pipeline.gaps import Gap
    from cdc_pipeline.mirrors.changes.late_ddl import ComesAgain
    from cdc_pipeline.mirrors.changes.segments import Doubt, Evidence
    from cdc_pipeline.mirrors.changes.window import Window
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.model.shards import ShardName
    from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
    from cdc_pipeline.mysql.model.table import TableName
    from cdc_pipeline.sources.places import Place


@dataclass(frozen=True)
class RowsTold:
    """By what the rows of a cut are told, beside its window, its selection and the decoded tables. It is stored with the
    plan, so that a run which finishes the cut takes the very same rows, and none in another step.

    `events` are the statements that part each table's rows, in stream order, `evidence` what rows say of those of
    which their place says nothing. `again` are tables of which rows of earlier cuts come along (`late_statements`);
    `released` those that waited and go on; `past` the statements of earlier cuts that rows may precede
    (`carried_rows`), with the evidence for them. `at_watermark`: rows at the very watermark are taken in, but those of
    tables that statements `altered` there. `keyless` are tables without a key whose messages name one.
    """

    events: tuple[DdlEvent, ...] = ()
    again: tuple[tuple[TableName | ShardName, ComesAgain], ...] = ()
    released: tuple[HeldTable, ...] = ()
    past: tuple[DdlEvent, ...] = ()
    evidence: Evidence = NO_EVIDENCE
    past_evidence: Evidence = NO_EVIDENCE
    at_watermark: bool = False
    altered: tuple[TableName, ...] = ()
    keyless: tuple[TableName, ...] = ()


class RowFinder(Protocol):
    """What the rows of a cut that is being planned are told by."""

    def past(self, delivered: DataFrame) -> Sequence[DdlEvent]:
        """The statements of earlier cuts that some of the rows may precede."""

    def is_known(self, name: TableName) -> bool:
        """Whether a table was there before the cut."""

    def types_of(self, places: Mapping[Place, str]) -> Mapping[Place, MessageTypes]:
        """The types that the messages at these places name, each of its dialect."""


class CutRows:
    """`delivered` are the row changes that the cut looks at, with `fresh` and `taken` (`Window.changes`); `repeated` the
    positions of those that were delivered before, None where there are none; `changes` the others, with their `segment`.

    What is read more than once is kept in memory until `close`. `log` is `change_log` by the names of mirrors, `table` gives
    another table of the pipeline. `waited`: the cut before left changes waiting. Where there is a `finder`, the evidence is
    found: `told` has it then, `doubts` are what is open still, and `gaps` those of tables of which rows came too late, or
    perhaps twice.
    """

    def __init__(
        self,
        window: Window,
        told: RowsTold,
        log: DataFrame,
        table: Callable[[str], DataFrame],
        *,
        waited: bool,
        finder: RowFinder | None = None,
    ) -> None:
        self._window, self._log, self._table = window, log, table
        self._planning = finder is not None
        self.told = told
        self.doubts: tuple[Doubt, ...] = ()
        self.gaps: dict[TableName, tuple[Gap, ...]] = {}
        released = {table.name: table for table in told.released}
        cuts = table("consistent_cuts") if released else None
        also = rows_at_watermark(window, log, told.altered) if told.at_watermark else None
        delivered = window.changes(log, waited=waited, again=dict(told.again), also=also)
        self.delivered = with_returned(delivered, log, cuts, released, told.events, window).persist()
        self._kept: list[DataFrame] = []
        self.repeated: DataFrame | None = None
        try:
            self.changes = self._placed(self._once(self.delivered), finder)
            if told.keyless:
                self.leave_out_repeated(told.keyless)
        except BaseException:
            self.close()
            raise

    def _once(self, changes: DataFrame, tables: Collection[TableName] = ()) -> DataFrame:
        watermarks, history = self._table("watermarks"), self._table("ddl_history")
        found = Redeliveries(changes, self._log, watermarks, history, self._window, self.told.events, tables)
        repeated = found.positions
        if repeated is None:
            return changes
        if self._planning:
            for name, gap in found.gaps.items():
                self.gaps[name] = (*self.gaps.get(name, ()), gap)
        self._kept.append(repeated.persist())
        self.repeated = repeated if self.repeated is None else self.repeated.unionByName(repeated)
        return changes.join(repeated, list(POSITION), "left_anti")

    def _placed(self, once: DataFrame, finder: RowFinder | None) -> DataFrame:
        told = self.told
        if finder is not None:
            told = replace(told, past=tuple(finder.past(self.delivered)))
        left = not_emptied(once, told.past)
        if finder is not None:
            # whether a table was there before statements of earlier cuts only they can tell
            evidence, doubts = found_evidence(left, told.past, lambda name: False, finder.types_of)
            told = replace(told, past_evidence=evidence)
            for name, gaps in carried_gaps(left, told.past, evidence, doubts, finder.types_of).items():
                self.gaps[name] = (*self.gaps.get(name, ()), *gaps)
        moved = carried_changes(left, told.past, told.past_evidence)
        if finder is not None:
            evidence, self.doubts = found_evidence(moved, told.events, finder.is_known, finder.types_of)
            told = replace(told, evidence=evidence)
        self.told = told
        return let_in_again(with_segments(moved, told.events, told.evidence), dict(told.again))

    def leave_out_repeated(self, tables: Collection[TableName]) -> None:
        """Leaves out what came twice of these tables too, whose mirrors have no key though their messages name one."""
        self.told = replace(self.told, keyless=tuple(sorted(tables)))
        self.changes = self._once(self.changes, tables)

    def close(self) -> None:
        for frame in (self.delivered, *self._kept):
            frame.unpersist()
