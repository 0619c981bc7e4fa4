"""Records the outcome of a DDL event: applied, or not applied with the reason and a gap."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.gaps import GapKind, statement_gap
from cdc_pipeline.lake.tables.ddl_history import APPLIED, NO_EFFECT, NOT_APPLIED

if TYPE_CHECKING:
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.model.ddl_outcome import DdlOutcome
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
    from cdc_pipeline.mysql.model.table import TableName


def record_effect(outcome: DdlOutcome, effect: str, *states: MirrorState) -> None:
    """Records an effect of the statement, with the states of the mirrors after it."""
    outcome.effects.append(effect)
    outcome.tables.extend(states)
    if outcome.status == NO_EFFECT:
        outcome.status = APPLIED


def refuse(draft: PlanDraft, name: TableName | None, reason: str, event: DdlEvent, outcome: DdlOutcome) -> None:
    """Records that the statement is not applied and why, and adds a gap to the table's mirror. `name` None: no single
    table."""
    outcome.status = NOT_APPLIED
    outcome.effects.append(f"{NOT_APPLIED}: {reason}")
    if name is None:
        return
    draft.flush_rows(name)
    before = draft.state(name)
    draft.add_gaps(name, statement_gap(GapKind.DDL_NOT_APPLIED, "a statement is not applied yet", event.position))
    marked = draft.state(name)
    if marked is not None and marked is not before:
        outcome.tables.append(marked)


def refuse_definition(draft: PlanDraft, name: TableName, reason: str, event: DdlEvent, outcome: DdlOutcome) -> None:
    """Refuses a statement that may change the definition. Rows show the columns until another statement defines them."""
    refuse(draft, name, reason, event, outcome)
    state = draft.state(name)
    if state is not None and not state.inferred:
        draft.record_state(replace(state, inferred=True))
