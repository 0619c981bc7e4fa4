"""Plans RECOVER and FLASHBACK: no message brings the rows, but the lake keeps them after a DROP or TRUNCATE."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.changes.dropped_tables import DroppedTable
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import RenameMirror, RestoreMirror, RestoreRows
from cdc_pipeline.mirrors.planning.outcomes import record_effect, refuse
from cdc_pipeline.mysql.model.change_names import folded
from cdc_pipeline.mysql.model.schema_changes import RecoverTable
from cdc_pipeline.mysql.model.table import TableName, TableSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.model.ddl_outcome import DdlOutcome
    from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
    from cdc_pipeline.mysql.model.schema_changes import SchemaChange


class RecoveryPlanner:
    """Plans one RECOVER or FLASHBACK statement.

    earlier: returns the tables of a database that earlier cuts dropped or truncated. `add_dropped`, `add_retired` and
    `add_truncated` add those of this cut.
    """

    def __init__(self, draft: PlanDraft, earlier: Callable[[str], Iterable[DroppedTable]]) -> None:
        self._draft = draft
        self._earlier = earlier
        self._dropped: dict[str, list[DroppedTable]] = {}
        self._expected: set[TableName] = set()

    def snapshot(self) -> dict[str, list[DroppedTable]]:
        return {database: list(found) for database, found in self._dropped.items()}

    def restore(self, snapshot: dict[str, list[DroppedTable]]) -> None:
        """Undoes all changes since the snapshot."""
        self._dropped = snapshot

    def expect(self, changes: Iterable[SchemaChange]) -> None:
        """Notes which tables a RECOVER or FLASHBACK of this cut names: rows before their TRUNCATE are needed."""
        self._expected = {folded(change.name) for change in changes if isinstance(change, RecoverTable)}

    def is_expected(self, name: TableName) -> bool:
        return folded(name) in self._expected

    def add_dropped(self, state: MirrorState, mark: str) -> None:
        self._dropped_in(state.name.database).append(DroppedTable(state, mark, "dropped"))

    def add_retired(self, state: MirrorState, mark: str) -> None:
        self._dropped_in(state.name.database).append(DroppedTable(state, mark, "retired"))

    def add_truncated(self, state: MirrorState, mark: str) -> None:
        self._dropped_in(state.name.database).append(DroppedTable(state, mark, "truncated"))

    def _dropped_in(self, database: str) -> list[DroppedTable]:
        database = database.lower()
        if database not in self._dropped:
            self._dropped[database] = list(self._earlier(database))
        return self._dropped[database]

    def recover(self, change: RecoverTable, event: DdlEvent, outcome: DdlOutcome) -> None:
        """Restores the table that was last dropped or truncated under the name, under `new_name` if given."""
        name = change.name
        candidates = [
            table
            for table in self._dropped_in(name.database)
            if folded(table.name) == folded(name) and table.time < event.commit_ts
        ]
        table = max(candidates, key=lambda item: item.time, default=None)
        target = change.new_name or name
        if self._draft.exists(target):
            refuse(self._draft, target, f"{name} cannot be recovered as {target}: {target} exists", event, outcome)
        elif table is None or (change.by_job and len(candidates) > 1):
            state = MirrorState(target, f"{target}@{event.ddl_id}", TableSchema(()), inferred=True)
            self._draft.create(state)
            found = (
                f"{len(candidates)} dropped mirrors of it, and does not know their jobs" if candidates else "none of it"
            )
            reason = f"{name} cannot be recovered: the lake has {found}"
            refuse(self._draft, target, reason, event, outcome)
        else:
            self._restore_mirror(table, target, event, outcome)

    def recover_database(self, database: str, new_database: str | None, event: DdlEvent, outcome: DdlOutcome) -> None:
        """Restores the tables of the last DROP DATABASE."""
        candidates = [
            table for table in self._dropped_in(database) if table.how != "truncated" and table.time < event.commit_ts
        ]
        last = max((table.time for table in candidates), default=None)
        for table in [table for table in candidates if table.time == last]:
            target = TableName(new_database or database, table.name.table)
            # pending rows do not show that it exists: without a statement that names the table, one segment has all its rows
            if self._draft.state(target) is not None:
                reason = f"{table.name} cannot be recovered as {target}: {target} exists"
                refuse(self._draft, target, reason, event, outcome)
            else:
                self._restore_mirror(table, target, event, outcome)
        if last is None:
            reason = f"database {database} cannot be recovered: the lake has no dropped mirrors of it"
            refuse(self._draft, None, reason, event, outcome)

    def _restore_mirror(self, table: DroppedTable, target: TableName, event: DdlEvent, outcome: DdlOutcome) -> None:
        if not self._draft.has_salt(table.state):
            self._draft.create(MirrorState(target, f"{target}@{event.ddl_id}", table.state.schema))
            reason = f"{table.name} cannot be recovered: its values were hashed with another mask_salt"
            refuse(self._draft, target, reason, event, outcome)
            return
        if table.how == "truncated":
            state = replace(table.state, name=target, mirror_id=f"{target}@{event.ddl_id}", kept_columns=())
            state = self._draft.with_masks(self._draft.named(state))
            if state.has_soft_delete:
                state = replace(state, soft_delete_key=())  # the key may have changed since
            self._draft.steps.append(RestoreRows(table.state, state, table.ddl_id))
        else:
            state = self._draft.named(replace(table.state, name=target, retired=None))
            if table.how == "retired":
                self._draft.steps.append(RenameMirror(table.state, state))
                self._draft.remove(table.state.name)
            else:
                self._draft.steps.append(RestoreMirror(table.state, state, table.ddl_id))
            self._dropped_in(table.state.name.database).remove(table)
        self._draft.set_state(state)
        self._draft.mark_filled(state)
        state = self._draft.apply_name_rules(state)
        record_effect(outcome, f"recovered {table.name} as {target}, as it was before {table.ddl_id}", state)
