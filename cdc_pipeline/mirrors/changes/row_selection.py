"""Which row changes a cut applies. Stored with the plan, so that a resumed run applies the same rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.changes.segments import NO_EVIDENCE

if TYPE_CHECKING:
    from cdc_pipeline.mirrors.changes.late_ddl import ComesAgain
    from cdc_pipeline.mirrors.changes.segments import Evidence
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.model.shards import ShardName
    from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
    from cdc_pipeline.mysql.model.table import TableName


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
