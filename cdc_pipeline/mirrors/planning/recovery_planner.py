"""RECOVER and FLASHBACK of tables and databases: rows that no message brings, from where the mirror's DROP left them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.changes.dropped_tables import EndedTable
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import RenameMirror, RestoreMirror, RestoreRows
from cdc_pipeline.mirrors.planning.outcomes import done, refuse
from cdc_pipeline.mysql.model.table import TableName, TableSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.model.ddl_outcome import DdlOutcome
    from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft


class RecoveryPlanner:
    """`earlier` gives the tables of a database that earlier cuts have ended; this cut's own are told by `has_…`."""

    def __init__(self, draft: PlanDraft, earlier: Callable[[str], Iterable[EndedTable]]) -> None:
        self._draft = draft
        self._earlier = earlier
        self._ended: dict[str, list[EndedTable]] = {}

    def snapshot(self) -> dict[str, list[EndedTable]]:
        return {database: list(found) for database, found in self._ended.items()}

    def restore(self, saved: dict[str, list[EndedTable]]) -> None:
        """What has ended is as it was `saved`."""
        self._ended = saved

    def has_dropped(self, state: MirrorState, mark: str) -> None:
        self._of(state.name.database).append(EndedTable(state, mark, "dropped"))

    def has_retired(self, state: MirrorState, mark: str) -> None:
        self._of(state.name.database).append(EndedTable(state, mark, "retired"))

    def has_truncated(self, state: MirrorState, mark: str) -> None:
        self._of(state.name.database).append(EndedTable(state, mark, "truncated"))

    def _of(self, database: str) -> list[EndedTable]:
        if database not in self._ended:
            self._ended[database] = list(self._earlier(database))
        return self._ended[database]

    def recover(self, name: TableName, new_name: TableName | None, event: DdlEvent, outcome: DdlOutcome) -> None:
        """The table that was ended last under the name comes back, under the new name where there is one."""
        candidates = [ended for ended in self._of(name.database) if ended.name == name and ended.time < event.commit_ts]
        ended = max(candidates, key=lambda item: item.time, default=None)
        target = new_name or name
        if self._draft.exists(target):
            refuse(self._draft, target, f"{name} is to come back as {target}, which exists", event, outcome)
        elif ended is None:
            state = MirrorState(target, f"{target}@{event.mark}", TableSchema(()), inferred=True)
            self._draft.create(state)
            refuse(self._draft, target, f"{name} is to come back, and nothing of it is kept here", event, outcome)
        else:
            self._bring_back(ended, target, event, outcome)

    def recover_database(self, database: str, new_database: str | None, event: DdlEvent, outcome: DdlOutcome) -> None:
        """The tables that went with the last DROP DATABASE come back."""
        dropped = [ended for ended in self._of(database) if ended.how != "truncated" and ended.time < event.commit_ts]
        last = max((ended.time for ended in dropped), default=None)
        for ended in [ended for ended in dropped if ended.time == last]:
            target = TableName(new_database or database, ended.name.table)
            # rows are no sign of it: no statement that names the table parts those before this one from those after it
            if self._draft.state(target) is not None:
                refuse(self._draft, target, f"{ended.name} is to come back as {target}, which exists", event, outcome)
            else:
                self._bring_back(ended, target, event, outcome)
        if last is None:
            refuse(self._draft, None, f"nothing of the database {database} is kept here", event, outcome)

    def _bring_back(self, ended: EndedTable, target: TableName, event: DdlEvent, outcome: DdlOutcome) -> None:
        if not self._draft.has_salt(ended.state):
            self._draft.create(MirrorState(target, f"{target}@{event.mark}", ended.state.schema))
            reason = f"what is kept of {ended.name} was hashed with another mask_salt"
            refuse(self._draft, target, reason, event, outcome)
            return
        if ended.how == "truncated":
            state = replace(ended.state, name=target, mirror_id=f"{target}@{event.mark}", kept=())
            state = self._draft.with_masks(state)
            if state.keeps_deleted:
                state = replace(state, soft_key=())  # its key may have been another one then
            self._draft.steps.append(RestoreRows(ended.state, state, ended.mark))
        else:
            state = replace(ended.state, name=target, retired=None)
            if ended.how == "retired":
                self._draft.steps.append(RenameMirror(ended.state, state))
                self._draft.remove(ended.state.name)
            else:
                self._draft.steps.append(RestoreMirror(ended.state, state, ended.mark))
            self._of(ended.state.name.database).remove(ended)
        self._draft.set_state(state)
        self._draft.mark_filled(state)
        state = self._draft.apply_name_rules(state)
        done(outcome, f"{ended.name} is back as {target}, as it was before {ended.mark}", state)
