"""The row changes of a cut: which it takes in, and in which segment of its table each lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.holding import with_returned
from cdc_pipeline.mirrors.order import not_emptied, with_segments
from cdc_pipeline.mirrors.redeliveries import POSITION, repeated_positions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from cdc_pipeline.mirrors.events import DdlEvent
    from cdc_pipeline.mirrors.policy import HeldTable
    from cdc_pipeline.mirrors.shards import ShardName
    from cdc_pipeline.mirrors.window import Window
    from cdc_pipeline.schemas.table import TableName


@dataclass(frozen=True)
class RowsTold:
    """By what the rows of a cut are told, beside its window, its selection and the decoded tables. It is stored with the
    plan, so that a run which finishes the cut takes the very same rows, and none in another step.

    `events` are the statements that part each table's rows, in stream order. `anew` are tables of which rows are let in
    again, each from a `commit_ts` on (`planner.tables_let_in_anew`); `released` those that waited and go on; `emptied` the
    statements of earlier cuts that have superseded what came after them (`ddl_of_cut.emptied_before`).
    """

    events: tuple[DdlEvent, ...] = ()
    anew: tuple[tuple[TableName | ShardName, int], ...] = ()
    released: tuple[HeldTable, ...] = ()
    emptied: tuple[DdlEvent, ...] = ()


class CutRows:
    """`delivered` are the row changes that the cut looks at, with `fresh` and `taken` (`Window.changes`); `repeated` the
    positions of those that were delivered before, None where there are none; `changes` the others, with their `segment`.

    What is read more than once is kept in memory until `close`. `log` is `change_log` by the names of mirrors, `table` gives
    another table of the pipeline. `waited`: the cut before left changes waiting. `emptied` gives the `RowsTold.emptied` of
    the delivered changes, where it is to be found out.
    """

    def __init__(
        self,
        window: Window,
        told: RowsTold,
        log: DataFrame,
        table: Callable[[str], DataFrame],
        *,
        waited: bool,
        emptied: Callable[[DataFrame], Sequence[DdlEvent]] | None = None,
    ) -> None:
        released = {table.name: table for table in told.released}
        cuts = table("consistent_cuts") if released else None
        delivered = window.changes(log, waited=waited, anew=dict(told.anew))
        self.delivered = with_returned(delivered, log, cuts, released, told.events, window).persist()
        self.repeated: DataFrame | None = None
        try:
            repeated = repeated_positions(self.delivered, log, table("watermarks"), window)
            once = self.delivered
            if repeated is not None:
                self.repeated = repeated.persist()
                once = self.delivered.join(repeated, list(POSITION), "left_anti")
            self.emptied = told.emptied if emptied is None else tuple(emptied(self.delivered))
            self.changes = with_segments(not_emptied(once, self.emptied), told.events)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.delivered.unpersist()
        if self.repeated is not None:
            self.repeated.unpersist()
