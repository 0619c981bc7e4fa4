"""What a cut does to mirrors, as values: the planner makes steps, `apply` carries them out one Delta commit at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mysql.expressions.partition_rows import SparkCondition
    from cdc_pipeline.mysql.model.table import ColumnOrigin, TableName


class BaseStep(ABC):
    """What each step reports about itself."""

    state: MirrorState

    @abstractmethod
    def names(self) -> tuple[TableName, ...]:
        """The mirrors whose folders the step reads or writes."""

    @abstractmethod
    def folder_after(self, paths: LakePaths) -> str | None:
        """The folder to which the step moves its mirror; None if the mirror stays."""


class _InPlace(BaseStep):
    def names(self) -> tuple[TableName, ...]:
        return (self.state.name,)

    def folder_after(self, paths: LakePaths) -> str | None:
        return None


class _Moved(BaseStep):
    before: MirrorState

    def names(self) -> tuple[TableName, ...]:
        return (self.before.name, self.state.name)

    def folder_after(self, paths: LakePaths) -> str | None:
        return paths.mirror(self.state.name)


@dataclass(frozen=True)
class CreateMirror(_InPlace):
    """An empty table of the state's columns."""

    state: MirrorState


@dataclass(frozen=True)
class ApplyRows(_InPlace):
    """The net row changes of `segments` of the name, under the state's schema. `source` is the name in the messages.

    `into_empty` is true where this cut has made or emptied the mirror before and nothing is in it: then rows are appended.
    `wires` are the dialects of the rows, each with how it sends columns (`mysql.types.wire_values`). `lacking` are
    columns that some of the rows came without: an UPDATE leaves them as they are. `computed` are generated columns that
    rows came without and whose values follow from the others; of a row that came with its handle key only they stay as
    they are, too. `untold` are columns that deletes came without, where the mirror keeps the row: they stay as they are.
    """

    state: MirrorState
    source: TableName
    segments: tuple[int, ...]
    changes: int
    into_empty: bool
    wires: tuple[tuple[str, dict[str, str]], ...] = ()
    lacking: tuple[str, ...] = ()
    computed: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()


@dataclass(frozen=True)
class KeepOnePerKey(_InPlace):
    """Of rows that are equal by the state's `soft_key`, which was another one before, the deleted ones go but for the
    newest, and that too where one of them is there."""

    state: MirrorState


@dataclass(frozen=True)
class ForgetDeleted(_InPlace):
    """The rows go that the mirror has kept when upstream deleted them."""

    state: MirrorState


@dataclass(frozen=True)
class ChangeColumns(_InPlace):
    """Columns or keys changed; `commit_ms` is the DDL's time, for defaults that are the current time.

    `kept` are columns that upstream drops and the mirror keeps: the name that each had and the one it is kept by.
    """

    before: MirrorState
    state: MirrorState
    origins: tuple[ColumnOrigin, ...]
    commit_ms: int
    kept: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class NoteState(_InPlace):
    """Only the state's properties change, such as a gap that was found."""

    state: MirrorState


@dataclass(frozen=True)
class TruncateMirror(_InPlace):
    """`mark` is that of the statement: by it the rows that were there are found again. Without one all rows come anew, and
    none is kept."""

    state: MirrorState
    mark: str = ""


@dataclass(frozen=True)
class RenameMirror(_Moved):
    before: MirrorState
    state: MirrorState


@dataclass(frozen=True)
class DropMirror(BaseStep):
    """The folder is moved aside, not deleted: a drop must be recoverable."""

    state: MirrorState
    mark: str

    def names(self) -> tuple[TableName, ...]:
        return (self.state.name,)

    def folder_after(self, paths: LakePaths) -> str | None:
        return paths.dropped(self.state.name, self.mark)


@dataclass(frozen=True)
class DeleteRows(_InPlace):
    """The rows for which `rows` is true are taken away: those of partitions that were emptied or dropped. A mirror that
    keeps what upstream deletes keeps them so."""

    state: MirrorState
    rows: SparkCondition
    what: str


@dataclass(frozen=True)
class ChangeShardRows(_InPlace):
    """The rows of one of a merged mirror's tables get other values. `shard` is the table's name in the rows that are there;
    `origins` are columns that get the value of another, or without one the default that upstream gave to rows; `cleared`
    become NULL; `renamed` is the table's name from now on. `commit_ms` is as in ChangeColumns."""

    state: MirrorState
    shard: TableName
    origins: tuple[ColumnOrigin, ...] = ()
    cleared: tuple[str, ...] = ()
    renamed: TableName | None = None
    commit_ms: int = 0


@dataclass(frozen=True)
class ExchangeRows(_InPlace):
    """The rows for which `rows` is true and all rows of `other` change places. `columns` are the names of each column in
    both. Where `validated` is false, upstream did not look whether those of `other` belong there."""

    state: MirrorState
    other: MirrorState
    columns: tuple[tuple[str, str], ...]
    rows: SparkCondition
    validated: bool
    what: str

    def names(self) -> tuple[TableName, ...]:
        return (self.state.name, self.other.name)


@dataclass(frozen=True)
class RestoreMirror(_Moved):
    """A mirror that a DROP has moved aside comes back, perhaps under another name. `mark` is the DROP's."""

    before: MirrorState
    state: MirrorState
    mark: str


@dataclass(frozen=True)
class RestoreRows(_InPlace):
    """A new mirror with the rows that `source` had before the TRUNCATE of this mark."""

    source: MirrorState
    state: MirrorState
    mark: str

    def names(self) -> tuple[TableName, ...]:
        return (self.source.name, self.state.name)


Step: TypeAlias = (
    CreateMirror
    | ApplyRows
    | ChangeColumns
    | NoteState
    | TruncateMirror
    | RenameMirror
    | DropMirror
    | DeleteRows
    | ChangeShardRows
    | ExchangeRows
    | RestoreMirror
    | RestoreRows
    | KeepOnePerKey
    | ForgetDeleted
)


def states_left(steps: Iterable[Step]) -> list[MirrorState]:
    """Each mirror that the steps are of, once, as the last of them leaves it."""
    return list({step.state.mirror_id: step.state for step in steps}.values())


def touched(step: Step) -> set[TableName]:
    """The names that a step speaks of: those of mirrors, and that of its rows."""
    return {*step.names(), *((step.source,) if isinstance(step, ApplyRows) else ())}
