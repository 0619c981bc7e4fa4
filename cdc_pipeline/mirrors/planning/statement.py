"""A statement that is being planned, with its outcome: its effects, or why it is not applied, with a gap."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from cdc_pipeline.gaps import Gap, GapKind, statement_gap
from cdc_pipeline.lake.tables.ddl_history import APPLIED, NO_EFFECT, NOT_APPLIED
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import DdlOutcome
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mysql.model.base_changes import sql_words
from cdc_pipeline.mysql.model.table import TableName, TableSchema

_CLASS = re.compile(r"^(?:[A-Z][a-z]+){2,}(?=[ :])")
"""The class of a change, with which its description begins."""


@dataclass(frozen=True)
class Statement:
    event: DdlEvent
    draft: PlanDraft
    outcome: DdlOutcome = field(default_factory=lambda: DdlOutcome(NO_EFFECT))

    def new_mirror(self, name: TableName, *gaps: Gap, merged: bool = False) -> MirrorState:
        """A mirror that the statement creates without a definition: its rows define its columns."""
        sources = () if merged else None
        mirror_id = f"{name}@{self.event.ddl_id}"
        return MirrorState(name, mirror_id, TableSchema(()), inferred=True, gaps=gaps, source_tables=sources)

    def note(self, text: str) -> None:
        """Adds a text to the outcome. The status stays."""
        self.outcome.effects.append(text)

    def record(self, effect: str, *states: MirrorState) -> None:
        """Records an effect of the statement, with the states of the mirrors after it."""
        self.note(effect)
        self.outcome.tables.extend(states)
        if self.outcome.status == NO_EFFECT:
            self.outcome.status = APPLIED

    def refuse(self, name: TableName | None, reason: str) -> None:
        """Records that the statement is not applied and why, and adds a gap to the table's mirror. `name` None: no single
        table."""
        self.outcome.status = NOT_APPLIED
        self.note(f"{NOT_APPLIED}: {_CLASS.sub(lambda found: sql_words(found[0]), reason)}")
        if name is None:
            return
        before = self.draft.flush_rows(name)
        gap = statement_gap(GapKind.DDL_NOT_APPLIED, "a statement is not applied yet", self.event.position)
        self.draft.add_gaps(name, gap)
        marked = self.draft.state(name)
        if marked is not None and marked is not before:
            self.outcome.tables.append(marked)

    def refuse_definition(self, name: TableName, reason: str) -> None:
        """Refuses a statement that may change the definition. Rows show the columns until another statement defines them."""
        self.refuse(name, reason)
        state = self.draft.state(name)
        if state is not None and not state.inferred:
            self.draft.record_state(replace(state, inferred=True))
