"""`ddl_policy`: whether destructive DDL is applied, keeps what it drops, or holds the table until it is approved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cdc_pipeline.gaps import Gap, GapKind, statement_gap
from cdc_pipeline.mirrors.settings.table_patterns import matches
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import Position
from cdc_pipeline.stored_json import StoredJson

DdlAction: TypeAlias = Literal["apply", "keep", "hold"]
APPLY: DdlAction = "apply"
KEEP: DdlAction = "keep"
HOLD: DdlAction = "hold"

NO_STATEMENT: Position = Position("", -1, -1)
"""The cause of a quarantined table, which no approval resumes."""


@dataclass(frozen=True)
class DdlPolicy:
    default: DdlAction = APPLY
    tables: tuple[tuple[str, DdlAction], ...] = ()
    """(pattern on `database.table`, action). The first match wins, then `default`."""

    def action_for(self, name: TableName) -> DdlAction:
        return next((action for pattern, action in self.tables if matches(str(name), pattern)), self.default)


POLICY_JSON = StoredJson(DdlPolicy)


@dataclass(frozen=True)
class HeldTable:
    """A table whose rows and later DDL are held before a statement, or that is quarantined."""

    name: TableName
    statement: Position
    """The statement that needs approval."""
    commit_ts: int
    """Where this table stopped: later than the statement if a RENAME connected it with a held table. 0: unknown."""
    rows: int = 0
    """Number of held row changes."""
    error: str = ""
    """Why the table is quarantined; empty if it is only held."""

    @property
    def gap(self) -> Gap:
        if self.error:
            message = f"quarantined: {self.error}. Later changes are held; rebuild the table to resume it"
            return Gap(GapKind.QUARANTINED, message)
        return statement_gap(GapKind.HELD, "held (ddl_policy) until its statement is approved", self.statement)


def quarantined_tables(held: Iterable[HeldTable]) -> frozenset[TableName]:
    """The names of those that are quarantined."""
    return frozenset(table.name for table in held if table.error)
