"""A cut as it is planned: all that a run needs to carry it out, so that any run does the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.changes.segments import NO_EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc_pipeline.mirrors.changes.order import RowSet
    from cdc_pipeline.mirrors.changes.segments import Evidence
    from cdc_pipeline.mirrors.ddl.events import DdlEvent
    from cdc_pipeline.mirrors.ddl.upstream_tables import Sources
    from cdc_pipeline.mirrors.model.shards import ShardName
    from cdc_pipeline.mirrors.model.steps import Numbering
    from cdc_pipeline.mirrors.planning.ddl_outcome import DdlOutcome
    from cdc_pipeline.mirrors.planning.planner import CutPlan
    from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
    from cdc_pipeline.mirrors.settings.policy import HeldTable, StatementPosition
    from cdc_pipeline.mirrors.window.late import LateChanges
    from cdc_pipeline.mirrors.window.late_statements import ComesAgain
    from cdc_pipeline.mirrors.window.window import Window
    from cdc_pipeline.schemas.model.table import TableName


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


@dataclass(frozen=True)
class PlannedCut:
    """`settings` are those that the cut is made with, whatever is declared when it is finished; the salt is no part of what
    is stored of them. `rows` tell which row changes it takes in, `row_sets` which of them each ApplyRows step lets in, by
    which key. `settled` are the statements that are decided without a step. `sources` are upstream's tables of mirrors that
    have names of their own. `held_left_out` are row changes that waited with tables that are not included any more.
    """

    window: Window
    settings: CutSettings
    rows: RowsTold
    plan: CutPlan
    row_sets: tuple[RowSet, ...]
    settled: Mapping[StatementPosition, DdlOutcome]
    late: LateChanges
    sources: Sources = field(default_factory=dict)
    selection_changes: tuple[str, ...] = ()
    held_left_out: int = 0
    hides: bool = False
    """Whether tables of the cut have masked columns: then what is stored has no value of a statement (`hidden_plan`)."""
    numbering: Numbering = "wide"
    plan_id: str = ""
    """Tells this plan from any other, also from one of a cut of the same number in a lake that was taken back."""

    @property
    def outcomes(self) -> dict[StatementPosition, DdlOutcome]:
        """What becomes of each statement of the cut."""
        return {**self.settled, **self.plan.outcomes}

    @property
    def positions(self) -> tuple[StatementPosition, ...]:
        """Those of `rows.events`."""
        return tuple(event.position for event in self.rows.events)
