"""What a cut does to mirrors, as values: the planner makes steps, `apply` carries them out one Delta commit at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from typing_extensions import assert_never

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mysql.expressions.partition_rows import SparkCondition
    from cdc_pipeline.mysql.model.table import ColumnOrigin, TableName


@dataclass(frozen=True)
class CreateMirror:
    """An empty table of the state's columns."""

    state: MirrorState


@dataclass(frozen=True)
class ApplyRows:
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
class KeepOnePerKey:
    """Of rows that are equal by the state's `soft_key`, which was another one before, the deleted ones go but for the
    newest, and that too where one of them is there."""

    state: MirrorState


@dataclass(frozen=True)
class ForgetDeleted:
    """The rows go that the mirror has kept when upstream deleted them."""

    state: MirrorState


@dataclass(frozen=True)
class ChangeColumns:
    """Columns or keys changed; `commit_ms` is the DDL's time, for defaults that are the current time.

    `kept` are columns that upstream drops and the mirror keeps: the name that each had and the one it is kept by.
    """

    before: MirrorState
    state: MirrorState
    origins: tuple[ColumnOrigin, ...]
    commit_ms: int
    kept: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class NoteState:
    """Only the state's properties change, such as a gap that was found."""

    state: MirrorState


@dataclass(frozen=True)
class TruncateMirror:
    """`mark` is that of the statement: by it the rows that were there are found again. Without one all rows come anew, and
    none is kept."""

    state: MirrorState
    mark: str = ""


@dataclass(frozen=True)
class RenameMirror:
    before: MirrorState
    state: MirrorState


@dataclass(frozen=True)
class DropMirror:
    """The folder is moved aside, not deleted: a drop must be recoverable."""

    state: MirrorState
    mark: str


@dataclass(frozen=True)
class DeleteRows:
    """The rows for which `rows` is true are taken away: those of partitions that were emptied or dropped. A mirror that
    keeps what upstream deletes keeps them so."""

    state: MirrorState
    rows: SparkCondition
    what: str


@dataclass(frozen=True)
class ChangeShardRows:
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
class ExchangeRows:
    """The rows for which `rows` is true and all rows of `other` change places. `columns` are the names of each column in
    both. Where `validated` is false, upstream did not look whether those of `other` belong there."""

    state: MirrorState
    other: MirrorState
    columns: tuple[tuple[str, str], ...]
    rows: SparkCondition
    validated: bool
    what: str


@dataclass(frozen=True)
class RestoreMirror:
    """A mirror that a DROP has moved aside comes back, perhaps under another name. `mark` is the DROP's."""

    before: MirrorState
    state: MirrorState
    mark: str


@dataclass(frozen=True)
class RestoreRows:
    """A new mirror with the rows that `source` had before the TRUNCATE of this mark."""

    source: MirrorState
    state: MirrorState
    mark: str


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


Numbering: TypeAlias = Literal["wide", "hundreds"]
"""How the commits of a cut's steps are numbered (`step_commits`): `hundreds` is that of lakes of format 2."""


def states_left(steps: Iterable[Step]) -> list[MirrorState]:
    """Each mirror that the steps are of, once, as the last of them leaves it."""
    return list({step.state.mirror_id: step.state for step in steps}.values())


def step_names(step: Step) -> tuple[TableName, ...]:
    """The names, thus the folders, that a step touches."""
    match step:
        case RenameMirror() | RestoreMirror():
            return (step.before.name, step.state.name)
        case ExchangeRows():
            return (step.state.name, step.other.name)
        case RestoreRows():
            return (step.source.name, step.state.name)
        case (
            CreateMirror()
            | ApplyRows()
            | ChangeColumns()
            | NoteState()
            | TruncateMirror()
            | DropMirror()
            | DeleteRows()
            | ChangeShardRows()
            | KeepOnePerKey()
            | ForgetDeleted()
        ):
            return (step.state.name,)
        case _:
            assert_never(step)


def touched(step: Step) -> set[TableName]:
    """The names that a step speaks of: those of mirrors, and that of its rows."""
    return {*step_names(step), *((step.source,) if isinstance(step, ApplyRows) else ())}
