"""What a pipeline lets DDL do to its mirrors: `apply` it, `keep` what it drops, or `hold` the table until it is approved."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from cdc_pipeline.gaps import Gap, GapKind, of_statement
from cdc_pipeline.mirrors.settings.table_patterns import matches

if TYPE_CHECKING:
    from cdc_pipeline.mysql.model.table import TableName

DdlAction: TypeAlias = Literal["apply", "keep", "hold"]
APPLY: DdlAction = "apply"
KEEP: DdlAction = "keep"
HOLD: DdlAction = "hold"

StatementPosition: TypeAlias = "tuple[str, int, int]"
"""Topic, partition and offset of a statement's message."""

NO_STATEMENT: StatementPosition = ("", -1, -1)
"""The cause of a table that waits for what no approval lets go on."""


@dataclass(frozen=True)
class DdlPolicy:
    """`tables` are (pattern on `database.table`, action) in order; the first that matches counts, else `default`.

    A pattern has `*`, `?` and `[…]` as file names have; case counts.
    """

    default: DdlAction = APPLY
    tables: tuple[tuple[str, DdlAction], ...] = ()

    def of(self, name: TableName) -> DdlAction:
        return next((action for pattern, action in self.tables if matches(str(name), pattern)), self.default)

    def to_json(self) -> str:
        return json.dumps({"default": self.default, "tables": self.tables}, ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> DdlPolicy:
        plain = json.loads(text)
        return DdlPolicy(plain["default"], tuple((pattern, action) for pattern, action in plain["tables"]))


@dataclass(frozen=True)
class HeldTable:
    """A table that waits before a statement: its rows and its other DDL from there on wait too.

    `cause` is the position of the statement that has to be approved, `sql` its text, empty where tables of it have masked
    columns. `commit_ts` is where this table
    stopped: it may have been drawn in later, by a RENAME with a table that waited. `rows` are the row changes that wait.
    `error` is empty but for a table that is put aside (`quarantine`): there it says why, and no approval lets it go on.
    """

    name: TableName
    cause: StatementPosition
    commit_ts: int
    sql: str
    rows: int = 0
    error: str = ""

    @property
    def gap(self) -> Gap:
        if self.error:
            words = f"put aside: {self.error}. What has come since waits; a rebuild of the table brings it back"
            return Gap(GapKind.PUT_ASIDE, words)
        topic, partition, offset = self.cause
        words = f"held (ddl_policy) until the statement at {topic}/{partition}/{offset} is approved"
        hidden = f"{words}: see ddl_history"
        return of_statement(GapKind.HELD, hidden, words, self.sql) if self.sql else Gap(GapKind.HELD, hidden)
