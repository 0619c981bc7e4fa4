"""Plans statements about whole tables: CREATE, TRUNCATE, DROP and RENAME."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.dialects.traits import Trait, dialect_has_trait
from cdc_pipeline.gaps import GapKind
from cdc_pipeline.mirrors.model.state import MAY_HAVE_EXISTED, MirrorState, name_gap
from cdc_pipeline.mirrors.model.steps import CreateMirror, DropMirror, RenameMirror, TruncateMirror
from cdc_pipeline.mirrors.settings.ddl_policy import KEEP
from cdc_pipeline.mysql.expressions.conversions import type_gaps
from cdc_pipeline.mysql.model.schema_changes import CreateTable, CreateTableLike, NotSupported
from cdc_pipeline.mysql.model.table import TableSchema

if TYPE_CHECKING:
    from cdc_pipeline.gaps import Gap
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
    from cdc_pipeline.mirrors.planning.recovery_planner import RecoveryPlanner
    from cdc_pipeline.mirrors.planning.statement import Statement
    from cdc_pipeline.mysql.model.table import TableName

_OF_DEFINITION = frozenset(
    (GapKind.UNSEEN_START, GapKind.UNDECLARED_COLUMN, GapKind.CONTRADICTORY_TYPES, GapKind.DDL_NOT_APPLIED)
)
"""The gaps of a table that a table made LIKE it shares, beside those of its types."""


class TablePlanner:
    """Plans one statement about a whole table. Registers dropped and truncated tables with `recovery`."""

    def __init__(self, draft: PlanDraft, recovery: RecoveryPlanner) -> None:
        self._draft = draft
        self._recovery = recovery
        self._removed: set[TableName] = set()

    def refuse_table(self, change: NotSupported, statement: Statement) -> None:
        """Refuses a statement. Infers the table's columns from its rows until another statement defines them."""
        name = change.name
        if name is not None and change.creates and not self._draft.exists(name):
            self._draft.create(MirrorState(name, f"{name}@{statement.event.ddl_id}", TableSchema(()), inferred=True))
        if name is None:
            statement.refuse(None, change.reason)
        else:
            statement.refuse_definition(name, change.reason)
        if change.everywhere:
            for other in self._draft.names():
                statement.refuse(other, change.reason)

    # ---- CREATE

    def create(self, change: CreateTable, statement: Statement, *, inferred: bool = False) -> None:
        """Creates the mirror. `inferred`: of `MirrorState`."""
        name, schema = change.name, change.schema
        if change.if_not_exists and self._draft.exists(name):
            statement.note(f"{name} exists already")
            return
        self._draft.flush_rows(name)
        existing = self._draft.state(name)
        if existing is not None:
            self._draft.require_same_table(name)
            # upstream created the table, so it no longer existed there: its DROP or RENAME is not in the stream
            self._draft.steps.append(DropMirror(existing, statement.event.ddl_id))
            self._recovery.add(name, statement.event.ddl_id, existing)
            statement.note(f"dropped the former {name}: the stream has no DROP or RENAME of it")
        state = MirrorState(name, f"{name}@{statement.event.ddl_id}", schema, inferred=inferred or not schema.columns)
        state = state.with_gaps(*self.gaps_of_start(change, statement.event))
        spelled = self._draft.named(state).name
        if (
            existing is not None
            and existing.name != spelled
            and not dialect_has_trait(statement.event.dialect, Trait.FROM_TIDB)
        ):
            state = state.with_gaps(name_gap(existing.name, spelled))
        statement.record(f"created {name}", self._draft.create(state))

    def gaps_of_start(self, change: CreateTable, event: DdlEvent) -> tuple[Gap, ...]:
        """The gaps of the created table.

        It may have existed before CREATE TABLE IF NOT EXISTS, which MySQL also logs if it did nothing (canal-facts 40),
        unless the same cut has removed it. TiCDC sends only statements that changed something.
        """
        is_new = not change.if_not_exists or dialect_has_trait(event.dialect, Trait.FROM_TIDB)
        if is_new or change.name in self._removed:
            return change.gaps
        return (*change.gaps, MAY_HAVE_EXISTED)

    def create_like(self, change: CreateTableLike, statement: Statement) -> None:
        """Creates the table with the definition of another, if that is known."""
        source = self._draft.state(change.source)
        if source is None and self._draft.exists(change.source):
            self._draft.flush_rows(change.source)
            source = self._draft.state(change.source)
        if source is None:
            reason = f"CREATE TABLE LIKE {change.source}, whose definition is unknown"
            self.refuse_table(NotSupported(reason, change.name, creates=True), statement)
            return
        gaps = tuple(gap for gap in source.gaps if gap.kind in _OF_DEFINITION and gap != MAY_HAVE_EXISTED)
        created = CreateTable(change.name, source.schema, change.if_not_exists, gaps)
        # rows correct a copied definition that comes from rows
        self.create(created, statement, inferred=source.inferred)

    # ---- TRUNCATE, DROP, RENAME

    def truncate(self, name: TableName, statement: Statement) -> None:
        """Empties the mirror, and removes the gaps of its rows."""
        state = self._draft.state(name)
        declared = self._draft.settings.columns.declares_soft_delete(name)
        keeps_rows = declared if state is None else state.has_soft_delete
        if keeps_rows or self._recovery.is_expected(name):
            self._draft.flush_rows(name)
        else:
            self._draft.discard_rows(name)
        state = self._draft.state(name)
        if state is None:
            statement.record(f"{name}: no mirror to truncate")
            return
        # the other gaps were about rows that no longer exist
        stays = tuple(gap for gap in state.gaps if gap.kind is GapKind.NAMES_DIFFER_IN_CASE)
        healed = replace(state, gaps=stays).with_gaps(*type_gaps(state.schema.columns))
        is_kept = self._recovery.is_expected(name) and not state.has_soft_delete
        self._recovery.add(name, statement.event.ddl_id, state if is_kept else None)
        if is_kept:  # a FLASHBACK of this cut moves the mirror with the rows back
            healed = replace(healed, mirror_id=f"{name}@{statement.event.ddl_id}")
            self._draft.steps += [DropMirror(state, statement.event.ddl_id), CreateMirror(healed)]
            self._draft.set_state(healed)
        else:
            self._draft.steps.append(TruncateMirror(state))
            if healed != state:
                self._draft.record_state(healed)
        self._draft.truncate(healed)
        statement.record(f"truncated {name}", healed)

    def drop(self, name: TableName, statement: Statement) -> None:
        """Moves the mirror to `dropped/`, or (`ddl_policy: keep`) renames it."""
        self._removed.add(name)
        self._draft.flush_rows(name)
        state = self._draft.state(name)
        if state is None:
            statement.note(f"{name}: no mirror to drop")
            return
        self._draft.remove(name)
        if self._draft.settings.policy.action_for(name) == KEEP:
            kept = state.as_retired(statement.event.ddl_id)
            self._draft.steps.append(RenameMirror(state, kept))
            self._draft.set_state(kept)
            self._recovery.add(name, statement.event.ddl_id, kept)
            statement.record(f"dropped {name}; its mirror is kept as {kept.name}")
            return
        self._draft.steps.append(DropMirror(state, statement.event.ddl_id))
        self._recovery.add(name, statement.event.ddl_id, state)
        statement.record(f"dropped {name}; its mirror is kept in dropped/")

    def rename(self, old: TableName, new: TableName, statement: Statement) -> None:
        """Renames the mirror, or refuses if one of the new name exists."""
        if not self._draft.exists(old):
            statement.record(f"{old} has no mirror yet; its rows will arrive as {new}")
            return
        self._removed.add(old)
        self._draft.flush_rows(old)
        self._draft.flush_rows(new)
        state = self._draft.state(old)
        assert state is not None  # the rows flushed above created it
        target = self._draft.state(new) if old != new else None
        if target is not None:
            self._draft.require_same_table(new)
            statement.refuse(old, f"RENAME of {old} to {new}: {new} exists")
            return
        renamed = self._draft.apply_name_rules(self._draft.rename(state, new))
        statement.record(f"renamed {old} to {new}", renamed)
