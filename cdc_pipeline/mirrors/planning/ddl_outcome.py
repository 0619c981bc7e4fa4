"""What became of a DDL event: noted in `ddl_history`, and shown by the check `ddl_applied`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc_pipeline.lake.tables.ddl_history import APPLIED, NO_EFFECT, NOT_APPLIED
from cdc_pipeline.schemas.model.gaps import GapKind, of_statement

if TYPE_CHECKING:
    from cdc_pipeline.mirrors.ddl.events import DdlEvent
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mirrors.planning.plan_book import PlanBook
    from cdc_pipeline.schemas.model.table import TableName


@dataclass
class DdlOutcome:
    """A status, what was done in words, and the tables' states after it."""

    status: str
    effects: list[str] = field(default_factory=list)
    tables: list[MirrorState] = field(default_factory=list)

    @property
    def effect(self) -> str:
        return "; ".join(self.effects)


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
