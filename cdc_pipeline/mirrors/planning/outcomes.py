"""How a plan records the outcome of a DDL event: applied, or refused with the reason and a gap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.gaps import GapKind, of_statement
from cdc_pipeline.lake.tables.ddl_history import APPLIED, NO_EFFECT, NOT_APPLIED

if TYPE_CHECKING:
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.model.ddl_outcome import DdlOutcome
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mirrors.planning.plan_book import PlanBook
    from cdc_pipeline.mysql.model.table import TableName


def done(outcome: DdlOutcome, effect: str, *states: MirrorState) -> None:
    outcome.effects.append(effect)
    outcome.tables.extend(states)
    if outcome.status == NO_EFFECT:
        outcome.status = APPLIED


def refuse(book: PlanBook, name: TableName | None, reason: str, event: DdlEvent, outcome: DdlOutcome) -> None:
    """Records what is not applied, and marks the table so that nothing is silently wrong."""
    outcome.status = NOT_APPLIED
    outcome.effects.append(f"{NOT_APPLIED}: {reason}")
    if name is None:
        return
    book.let_rows_in(name)
    before = book.state(name)
    hidden = f"a statement is not applied yet: see ddl_history (commit_ts {event.commit_ts})"
    clear = f"{reason} (commit_ts {event.commit_ts})"
    book.mark(name, of_statement(GapKind.DDL_NOT_APPLIED, hidden, clear, event.sql))
    marked = book.state(name)
    if marked is not None and marked is not before:
        outcome.tables.append(marked)
