"""Plans RECOVER and FLASHBACK: no message brings the rows, but the lake keeps the mirrors of dropped tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.gaps import GapKind, statement_gap
from cdc_pipeline.mirrors.changes.dropped_tables import EndedTable
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import RenameMirror
from cdc_pipeline.mysql.model.change_names import folded
from cdc_pipeline.mysql.model.schema_changes import RecoverDatabase, RecoverTable
from cdc_pipeline.mysql.model.table import TableName, TableSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
    from cdc_pipeline.mirrors.planning.statement import Statement
    from cdc_pipeline.mysql.model.schema_changes import SchemaChange

_NOT_KEPT = "the lake keeps no mirror of it; a rebuild brings the rows that the stream has had"
_TRUNCATED = "they were truncated; a rebuild brings them, unless the table uses soft_delete"
_OTHER_SALT = "they were hashed with another mask_salt; a rebuild brings them"
_SEVERAL = (
    "several dropped tables had the name, and a job number does not show which is meant; a rebuild does not either"
)


class RecoveryPlanner:
    """Moves the mirror that the lake keeps back. Without one the table comes back empty, with a gap.

    earlier: returns the tables of a database that earlier cuts dropped or truncated. `add` adds those of this cut.
    """

    def __init__(self, draft: PlanDraft, earlier: Callable[[str], Iterable[EndedTable]]) -> None:
        self._draft = draft
        self._earlier = earlier
        self._ended: dict[str, list[EndedTable]] = {}
        self._expected: set[TableName] = set()

    def expect(self, changes: Iterable[SchemaChange]) -> None:
        """Notes what the RECOVER and FLASHBACK statements of this cut name."""
        found = [change for change in changes if isinstance(change, (RecoverTable, RecoverDatabase))]
        names = (
            change.name if isinstance(change, RecoverTable) else TableName(change.database, "") for change in found
        )
        self._expected = set(map(folded, names))

    def is_expected(self, name: TableName) -> bool:
        """Whether a statement of this cut recovers a table of that name."""
        return folded(name) in self._expected

    def add(self, name: TableName, ddl_id: str, state: MirrorState | None) -> None:
        """Notes a table that this cut drops or truncates (`EndedTable`)."""
        if self._expected:
            self._ended_in(name.database).append(EndedTable(name, ddl_id, state))

    def _ended_in(self, database: str) -> list[EndedTable]:
        database = database.lower()
        if database not in self._ended:
            self._ended[database] = list(self._earlier(database))
        return self._ended[database]

    def _ended_before(self, event: DdlEvent, database: str) -> list[EndedTable]:
        return [table for table in self._ended_in(database) if table.time < event.commit_ts]

    def recover(self, change: RecoverTable, statement: Statement) -> None:
        """Brings back the table that was last dropped or truncated under the name, under `new_name` if given."""
        name, target = change.name, change.new_name or change.name
        ended = [
            table for table in self._ended_before(statement.event, name.database) if folded(table.name) == folded(name)
        ]
        table = max(ended, key=lambda item: item.time, default=None)
        if self._draft.exists(target):
            statement.refuse(target, f"{name} cannot be recovered as {target}: {target} exists")
        elif table is None or (change.by_job and len(ended) > 1):
            self._create_empty(target, _SEVERAL if ended else _NOT_KEPT, statement)
        else:
            self._bring_back(table, target, statement)

    def recover_database(self, database: str, new_database: str | None, statement: Statement) -> None:
        """Brings back the tables of the last DROP DATABASE."""
        dropped = [table for table in self._ended_before(statement.event, database) if table.state]
        last = max((table.time for table in dropped), default=None)
        for table in [table for table in dropped if table.time == last]:
            former = table.state.former_name if table.state else table.name
            target = replace(former, database=new_database or former.database)
            # pending rows do not show that it exists: without a statement that names the table, one segment has all its rows
            if self._draft.state(target) is not None:
                reason = f"{table.name} cannot be recovered as {target}: {target} exists"
                statement.refuse(target, reason)
            else:
                self._bring_back(table, target, statement)
        if last is None:
            reason = f"database {database} cannot be recovered: the lake has no dropped mirrors of it"
            statement.refuse(None, reason)

    def _bring_back(self, table: EndedTable, target: TableName, statement: Statement) -> None:
        kept = table.state
        if kept is None or not self._draft.settings.columns.has_same_salt(kept):
            self._create_empty(target, _TRUNCATED if kept is None else _OTHER_SALT, statement)
            return
        state = self._draft.named(replace(kept, name=target, retired=None))
        self._draft.steps.append(RenameMirror(kept, state, table.ddl_id if kept.retired is None else None))
        if kept.retired is not None:
            self._draft.remove(kept.name)
        self._ended_in(table.name.database).remove(table)
        self._draft.set_state(state)
        state = self._draft.apply_name_rules(state)
        statement.record(f"recovered {table.name} as {target}, as it was before {table.ddl_id}", state)

    def _create_empty(self, target: TableName, reason: str, statement: Statement) -> None:
        """Creates the mirror without columns, which its next rows show."""
        text = f"RECOVER or FLASHBACK brought the table back without its rows: {reason}"
        gap = statement_gap(GapKind.NOT_RESTORED, text, statement.event.position)
        state = MirrorState(target, f"{target}@{statement.event.ddl_id}", TableSchema(()), inferred=True)
        statement.record(f"{target} came back without its rows", self._draft.create(state.with_gaps(gap)))
