"""What a cut does to mirrors, as values: the planner makes steps, `apply` carries them out one Delta commit at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from cdc_pipeline.mirrors.state import MirrorState
    from cdc_pipeline.schemas.table import Column, TableName


@dataclass(frozen=True)
class CreateMirror:
    """An empty table of the state's columns."""

    state: MirrorState


@dataclass(frozen=True)
class ApplyRows:
    """The net row changes of `segments` of the name, under the state's schema. `source` is the name in the messages.

    `into_empty` is true where this cut has made or emptied the mirror before and nothing is in it: then rows are appended.
    `wires` are the dialects of the rows, each with how it sends columns (`schemas.wire`). `lacking` are columns that some
    of the rows came without: an UPDATE leaves them as they are.
    """

    state: MirrorState
    source: TableName
    segments: tuple[int, ...]
    changes: int
    into_empty: bool
    wires: tuple[tuple[str, dict[str, str]], ...] = ()
    lacking: tuple[str, ...] = ()


@dataclass(frozen=True)
class ColumnOrigin:
    """A column after ALTER TABLE and the column it was before; `before` is None for an added one."""

    after: Column
    before: Column | None


@dataclass(frozen=True)
class ChangeColumns:
    """Columns or keys changed; `commit_ms` is the DDL's time, for defaults that are the current time."""

    before: MirrorState
    state: MirrorState
    origins: tuple[ColumnOrigin, ...]
    commit_ms: int


@dataclass(frozen=True)
class NoteState:
    """Only the state's properties change, such as a gap that was found."""

    state: MirrorState


@dataclass(frozen=True)
class TruncateMirror:
    state: MirrorState


@dataclass(frozen=True)
class RenameMirror:
    before: MirrorState
    state: MirrorState


@dataclass(frozen=True)
class DropMirror:
    """The folder is moved aside, not deleted: a drop must be recoverable."""

    state: MirrorState
    mark: str


Step: TypeAlias = CreateMirror | ApplyRows | ChangeColumns | NoteState | TruncateMirror | RenameMirror | DropMirror


def step_names(step: Step) -> tuple[TableName, ...]:
    """The names, thus the folders, that a step touches."""
    return (step.before.name, step.state.name) if isinstance(step, RenameMirror) else (step.state.name,)
