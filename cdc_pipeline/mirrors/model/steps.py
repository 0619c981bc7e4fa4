"""The steps of a cut as values, and the outcomes of its statements. `planning` creates them, `execution` runs the steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mysql.expressions.partition_rows import SparkCondition
from cdc_pipeline.mysql.model.table import ColumnOrigin, TableName
from cdc_pipeline.stored_json import BY_CLASS


@dataclass(frozen=True)
class BaseStep:
    """What every step has and reports about itself."""

    state: MirrorState

    def mirrors(self) -> tuple[MirrorState, ...]:
        """The mirrors whose folders the step reads or writes."""
        return (self.state,)

    def names(self) -> tuple[TableName, ...]:
        return tuple(mirror.name for mirror in self.mirrors())

    def folder_after(self, paths: LakePaths) -> str | None:
        """The folder to which the step moves its mirror; None if the mirror stays."""
        return None


@dataclass(frozen=True)
class CreateMirror(BaseStep):
    """Creates an empty mirror."""


@dataclass(frozen=True)
class ApplyRows(BaseStep):
    """Merges the net row changes of some segments."""

    source: TableName
    """The table's name in the messages."""
    segments: tuple[int, ...]
    """Segments of the table's rows, which DDL separates (`changes.segments`)."""
    changes: int
    """Number of row changes."""
    into_empty: bool
    """The mirror is empty because this cut created or truncated it: rows are appended."""
    encodings: tuple[tuple[str, dict[str, str]], ...] = ()
    """The dialects of the rows, each with its encoding of columns (`mysql.types.wire_values`)."""
    absent: tuple[str, ...] = ()
    """Columns that some rows lack. An UPDATE leaves them unchanged."""
    generated: tuple[str, ...] = ()
    """Generated columns that some rows lack and that other columns determine. Rows with their handle key only leave them
    unchanged."""
    absent_in_deletes: tuple[str, ...] = ()
    """Columns that deletes lack, in a mirror with `soft_delete`. They stay unchanged."""
    spellings: tuple[tuple[str, str], ...] = ()
    """(name in messages, name in the mirror) of columns that messages spell in another case."""


@dataclass(frozen=True)
class LoadBaseline(BaseStep):
    """Appends the rows of a baseline to its new mirror."""

    baseline: str
    """Its id."""
    source: TableName
    """The table's name in the export."""
    key: tuple[str, ...]
    """The columns that identify a row; empty for a keyless table."""
    commit_ts: int
    """The moment of the baseline."""


@dataclass(frozen=True)
class PurgeSurplusRows(BaseStep):
    """Removes surplus deleted rows of each `soft_delete_key` after the key has changed.

    All live rows stay; without a live row the newest deleted one stays.
    """


@dataclass(frozen=True)
class PurgeDeletedRows(BaseStep):
    """Removes all rows that upstream deleted (`soft_delete`)."""


@dataclass(frozen=True)
class ChangeColumns(BaseStep):
    """Changes columns or keys."""

    before: MirrorState
    origins: tuple[ColumnOrigin, ...]
    """Each column of the new schema with the column that its values come from."""
    commit_ms: int
    """Time of the DDL in ms, for defaults such as CURRENT_TIMESTAMP."""
    kept_columns: tuple[tuple[str, str], ...] = ()
    """Columns that upstream drops and the mirror keeps (`ddl_policy: keep`), as (former name, name in the mirror)."""
    is_start: bool = True
    """Whether the statement began in the second of `commit_ms`; if not, it began earlier."""


@dataclass(frozen=True)
class UpdateState(BaseStep):
    """Changes the state only, for example its gaps."""


@dataclass(frozen=True)
class TruncateMirror(BaseStep):
    """Deletes all rows, or marks them as deleted (`soft_delete`)."""


@dataclass(frozen=True)
class RenameMirror(BaseStep):
    """Moves the mirror's folder to another name, or back from where a `DropMirror` put it."""

    before: MirrorState
    dropped_by: str | None = None
    """The `ddl_id` of that DropMirror."""

    def mirrors(self) -> tuple[MirrorState, ...]:
        return (self.before, self.state)

    def folder_before(self, paths: LakePaths) -> str:
        if self.dropped_by is None or not paths.is_local:
            return self.before.folder(paths)
        return paths.dropped_mirror(self.before.name, self.dropped_by)

    def folder_after(self, paths: LakePaths) -> str | None:
        return self.state.folder(paths)


@dataclass(frozen=True)
class DropMirror(BaseStep):
    """Moves the mirror's folder aside, or marks it where mirrors do not move: RECOVER or FLASHBACK can restore it."""

    ddl_id: str
    """The id of the statement (`DdlEvent.ddl_id`)."""

    def folder_after(self, paths: LakePaths) -> str | None:
        return paths.dropped_mirror(self.state.name, self.ddl_id) if paths.is_local else None


@dataclass(frozen=True)
class DeleteRows(BaseStep):
    """Deletes rows, or marks them as deleted (`soft_delete`): those of truncated or dropped partitions or source tables."""

    rows: SparkCondition
    description: str
    """The statement in words, for gaps."""


@dataclass(frozen=True)
class ChangeSourceRows(BaseStep):
    """Changes values in the rows of one source table of a merged mirror."""

    source_table: TableName
    """The source table's name in the existing rows."""
    origins: tuple[ColumnOrigin, ...] = ()
    """Columns that get the values of another column, or their default if they have no source."""
    cleared: tuple[str, ...] = ()
    """Columns that become NULL."""
    renamed: TableName | None = None
    """The source table's new name, if it changes."""
    commit_ms: int = 0
    """Time of the DDL in ms, for defaults such as CURRENT_TIMESTAMP."""
    is_start: bool = True
    """Whether the statement began in the second of `commit_ms`; if not, it began earlier."""


@dataclass(frozen=True)
class ExchangeRows(BaseStep):
    """Exchanges some rows with all rows of another mirror (EXCHANGE PARTITION)."""

    other: MirrorState
    columns: tuple[tuple[str, str], ...]
    """(name in this mirror, name in the other) of each column."""
    rows: SparkCondition
    """The rows of this mirror that are exchanged."""
    validated: bool
    """Upstream checked that the rows of `other` belong to the partition."""
    description: str
    """The statement in words, for gaps."""

    def mirrors(self) -> tuple[MirrorState, ...]:
        return (self.state, self.other)


Step: TypeAlias = Annotated[
    CreateMirror
    | ApplyRows
    | LoadBaseline
    | ChangeColumns
    | UpdateState
    | TruncateMirror
    | RenameMirror
    | DropMirror
    | DeleteRows
    | ChangeSourceRows
    | ExchangeRows
    | PurgeSurplusRows
    | PurgeDeletedRows,
    BY_CLASS,
]


def final_states(steps: Iterable[Step]) -> list[MirrorState]:
    """The state of each mirror after the last of its steps."""
    return list({step.state.mirror_id: step.state for step in steps}.values())


@dataclass
class DdlOutcome:
    """What a DDL event did, as stored in `ddl_history` and reported by the check `ddl_applied`."""

    status: str
    effects: list[str] = field(default_factory=list)
    """What was done, one phrase per effect."""
    tables: list[MirrorState] = field(default_factory=list)
    """States of the affected mirrors after the event."""

    @property
    def effect(self) -> str:
        return "; ".join(self.effects)
