"""Plans statements about whole tables: CREATE, TRUNCATE, DROP, RENAME and RECOVER."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from cdc_pipeline.dialects.traits import Trait, dialect_has_trait
from cdc_pipeline.gaps import Gap, GapKind, statement_gap
from cdc_pipeline.mirrors.changes.dropped_tables import EndedTable
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.model.state import MAY_HAVE_EXISTED, MirrorState, name_gap
from cdc_pipeline.mirrors.model.steps import CreateMirror, DropMirror, LoadBaseline, RenameMirror, TruncateMirror
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.statement import Statement
from cdc_pipeline.mirrors.settings.ddl_policy import KEEP
from cdc_pipeline.mysql.expressions.conversions import type_gaps
from cdc_pipeline.mysql.model import schema_changes as ddl
from cdc_pipeline.mysql.model.change_names import folded
from cdc_pipeline.mysql.model.table import TableName

_OF_DEFINITION = frozenset(
    (GapKind.UNSEEN_START, GapKind.UNDECLARED_COLUMN, GapKind.CONTRADICTORY_TYPES, GapKind.DDL_NOT_APPLIED)
)
"""The gaps of a table that a table made LIKE it shares, beside those of its types."""

_NOT_KEPT = "the lake keeps no mirror of it; a rebuild brings the rows that the stream has had"
_TRUNCATED = "they were truncated; a rebuild brings them, unless the table uses soft_delete"
_OTHER_SALT = "they were hashed with another mask_salt; a rebuild brings them"
_SEVERAL = (
    "several dropped tables had the name, and a job number does not show which is meant; a rebuild does not either"
)


class TablePlanner:
    """Plans one statement about a whole table.

    ended: returns the tables of a database that earlier cuts dropped or truncated.
    """

    def __init__(self, draft: PlanDraft, ended: Callable[[str], Iterable[EndedTable]]) -> None:
        self._draft = draft
        self._ended_before = ended
        self._ended: dict[str, list[EndedTable]] = {}
        """Database → its tables that earlier cuts or this one dropped or truncated."""
        self._expected: set[TableName] = set()
        self._removed: set[TableName] = set()

    def refuse_table(self, change: ddl.NotSupported, statement: Statement) -> None:
        """Refuses a statement. Infers the table's columns from its rows until another statement defines them."""
        name = change.name
        if name is not None and change.creates and not self._draft.exists(name):
            self._draft.create(statement.new_mirror(name))
        if name is None:
            statement.refuse(None, change.reason)
        else:
            statement.refuse_definition(name, change.reason)
        if change.everywhere:
            for other in self._draft.names():
                statement.refuse(other, change.reason)

    # ---- CREATE

    def create(self, change: ddl.CreateTable, statement: Statement, *, inferred: bool = False) -> None:
        """Creates the mirror. `inferred`: of `MirrorState`."""
        name, schema = change.name, change.schema
        if change.if_not_exists and self._draft.exists(name):
            statement.note(f"{name} exists already")
            return
        if change.baseline:
            self._draft.discard_rows(name)
        else:
            self._draft.flush_rows(name)
        existing = self._draft.state(name)
        if existing is not None:
            self._draft.require_same_table(name)
            self._draft.add(DropMirror(existing, statement.event.ddl_id))
        if existing is not None and not change.baseline:
            # upstream created the table, so it no longer existed there: its DROP or RENAME is not in the stream
            self._end(name, statement.event.ddl_id, existing)
            statement.note(f"dropped the former {name}: the stream has no DROP or RENAME of it")
        state = MirrorState(
            name,
            f"{name}@{statement.event.ddl_id}",
            schema,
            inferred=inferred or not schema.columns,
            exported_until=(statement.event.ts or 0) if change.baseline else 0,
        )
        state = state.with_gaps(*self.gaps_of_start(change, statement.event))
        spelled = self._draft.named(state).name
        if (
            existing is not None
            and existing.name != spelled
            and not dialect_has_trait(statement.event.dialect, Trait.FROM_TIDB)
        ):
            state = state.with_gaps(name_gap(existing.name, spelled))
        created = self._draft.create(state)
        if change.baseline:
            event, key = statement.event, self._draft.key(created)
            source = TableName(event.database, event.table)
            self._draft.add(LoadBaseline(created, change.baseline, source, key, event.commit_ts))
            statement.record(f"loaded {name} from the baseline {change.baseline}", created)
        else:
            statement.record(f"created {name}", created)

    def gaps_of_start(self, change: ddl.CreateTable, event: DdlEvent) -> tuple[Gap, ...]:
        """The gaps of the created table.

        It may have existed before CREATE TABLE IF NOT EXISTS, which MySQL also logs if it did nothing (canal-facts 40),
        unless the same cut has removed it. TiCDC sends only statements that changed something.
        """
        is_new = not change.if_not_exists or dialect_has_trait(event.dialect, Trait.FROM_TIDB)
        if is_new or change.name in self._removed:
            return change.gaps
        return (*change.gaps, MAY_HAVE_EXISTED)

    def create_like(self, change: ddl.CreateTableLike, statement: Statement) -> None:
        """Creates the table with the definition of another, if that is known."""
        source = self._draft.state(change.source) or self._draft.flush_rows(change.source)
        if source is None:
            reason = f"CREATE TABLE LIKE {change.source}, whose definition is unknown"
            self.refuse_table(ddl.NotSupported(reason, change.name, creates=True), statement)
            return
        gaps = tuple(gap for gap in source.gaps if gap.kind in _OF_DEFINITION and gap != MAY_HAVE_EXISTED)
        schema = replace(source.schema, foreign_keys=())  # which MySQL does not copy
        created = ddl.CreateTable(change.name, schema, change.if_not_exists, gaps)
        # rows correct a copied definition that comes from rows
        self.create(created, statement, inferred=source.inferred)

    # ---- TRUNCATE, DROP, RENAME

    def truncate(self, name: TableName, statement: Statement) -> None:
        """Empties the mirror, and removes the gaps of its rows."""
        state, is_recovered = self._draft.state(name), folded(name) in self._expected
        declared = self._draft.settings.columns.declares_soft_delete(name)
        keeps_rows = declared if state is None else state.has_soft_delete
        if keeps_rows or is_recovered:
            self._draft.flush_rows(name)
        else:
            self._draft.discard_rows(name)
        state = self._draft.state(name)
        if state is None:
            statement.record(f"{name}: no mirror to truncate")
            return
        # the other gaps were about rows that no longer exist
        stays = tuple(gap for gap in state.gaps if gap.kind is GapKind.NAMES_DIFFER_IN_CASE)
        healed = replace(state, gaps=stays, exported_until=0).with_gaps(*type_gaps(state.schema.columns))
        is_kept = is_recovered and not state.has_soft_delete
        self._end(name, statement.event.ddl_id, state if is_kept else None)
        if is_kept:  # a FLASHBACK of this cut moves the mirror with the rows back
            healed = replace(healed, mirror_id=f"{name}@{statement.event.ddl_id}")
            self._draft.add(DropMirror(state, statement.event.ddl_id))
            self._draft.add(CreateMirror(healed))
        else:
            self._draft.add(TruncateMirror(state))
            if healed != state:
                self._draft.record_state(healed)
        statement.record(f"truncated {name}", healed)

    def drop(self, name: TableName, statement: Statement) -> None:
        """Moves the mirror to `dropped/`, or (`ddl_policy: keep`) renames it."""
        self._removed.add(name)
        state = self._draft.flush_rows(name)
        if state is None:
            statement.note(f"{name}: no mirror to drop")
            return
        if self._draft.settings.policy.action_for(name) == KEEP:
            kept = state.as_retired(statement.event.ddl_id)
            self._draft.add(RenameMirror(kept, state))
            self._end(name, statement.event.ddl_id, kept)
            statement.record(f"dropped {name}; its mirror is kept as {kept.name}")
            return
        self._draft.add(DropMirror(state, statement.event.ddl_id))
        self._end(name, statement.event.ddl_id, state)
        statement.record(f"dropped {name}; its mirror is kept in dropped/")

    def rename(self, old: TableName, new: TableName, statement: Statement) -> None:
        """Renames the mirror, or refuses if one of the new name exists."""
        if not self._draft.exists(old):
            statement.record(f"{old} has no mirror yet; its rows will arrive as {new}")
            return
        self._removed.add(old)
        state = self._draft.flush_rows(old)
        assert state is not None  # the rows flushed above created it
        target = self._draft.flush_rows(new) if old != new else None
        if target is not None:
            self._draft.require_same_table(new)
            statement.refuse(old, f"RENAME of {old} to {new}: {new} exists")
            return
        renamed = self._draft.apply_name_rules(self._draft.rename(state, new))
        statement.record(f"renamed {old} to {new}", renamed)

    # ---- RECOVER and FLASHBACK: no message brings the rows, but the lake keeps the mirrors of dropped tables

    def expect(self, changes: Iterable[ddl.SchemaChange]) -> None:
        """Notes what the RECOVER and FLASHBACK statements of this cut name."""
        found = [change for change in changes if isinstance(change, (ddl.RecoverTable, ddl.RecoverDatabase))]
        names = (
            change.name if isinstance(change, ddl.RecoverTable) else TableName(change.database, "") for change in found
        )
        self._expected = set(map(folded, names))

    def _end(self, name: TableName, ddl_id: str, state: MirrorState | None) -> None:
        """Notes a table that this cut drops or truncates (`EndedTable`)."""
        if self._expected:
            self._ended_in(name.database).append(EndedTable(name, ddl_id, state))

    def _ended_in(self, database: str) -> list[EndedTable]:
        database = database.lower()
        if database not in self._ended:
            self._ended[database] = list(self._ended_before(database))
        return self._ended[database]

    def _ended_until(self, event: DdlEvent, database: str) -> list[EndedTable]:
        return [table for table in self._ended_in(database) if table.time < event.commit_ts]

    def recover(self, change: ddl.RecoverTable, statement: Statement) -> None:
        """Brings back the table that was last dropped or truncated under the name, under `new_name` if given."""
        name, target = change.name, change.new_name or change.name
        before = self._ended_until(statement.event, name.database)
        ended = [table for table in before if folded(table.name) == folded(name)]
        table = max(ended, key=lambda item: item.time, default=None)
        if self._draft.exists(target):
            statement.refuse(target, f"{name} cannot be recovered as {target}: {target} exists")
        elif table is None or (change.by_job and len(ended) > 1):
            self._create_empty(target, _SEVERAL if ended else _NOT_KEPT, statement)
        else:
            self._bring_back(table, target, statement)

    def recover_database(self, database: str, new_database: str | None, statement: Statement) -> None:
        """Brings back the tables of the last DROP DATABASE."""
        dropped = [table for table in self._ended_until(statement.event, database) if table.state]
        last = max((table.time for table in dropped), default=None)
        for table in [table for table in dropped if table.time == last]:
            former = table.state.former_name if table.state else table.name
            target = replace(former, database=new_database or former.database)
            # pending rows do not show that it exists: without a statement that names the table, one segment has all its rows
            if self._draft.state(target) is not None:
                statement.refuse(target, f"{table.name} cannot be recovered as {target}: {target} exists")
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
        self._draft.add(RenameMirror(state, kept, table.ddl_id if kept.retired is None else None))
        self._ended_in(table.name.database).remove(table)
        state = self._draft.apply_name_rules(state)
        statement.record(f"recovered {table.name} as {target}, as it was before {table.ddl_id}", state)

    def _create_empty(self, target: TableName, reason: str, statement: Statement) -> None:
        """Creates the mirror without columns, which its next rows show."""
        text = f"RECOVER or FLASHBACK brought the table back without its rows: {reason}"
        gap = statement_gap(GapKind.NOT_RESTORED, text, statement.event.position)
        created = self._draft.create(statement.new_mirror(target, gap))
        statement.record(f"{target} came back without its rows", created)
