"""The numbers of the commits that a cut makes on mirrors: Delta skips one that is not above what its writer has committed.

They grow from cut to cut, within a cut from step to step, and within a step from part to part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import Commit

if TYPE_CHECKING:
    from collections.abc import Mapping

_PARTS = 100_000
"""The commits that a step may make."""
_STEPS = 1_000_000
"""The steps that a cut may have."""
_NUMBERS = _PARTS * _STEPS
_MOST = 2**63 - 1


def cut_of_writers(pipeline: str, writers: Mapping[str, int]) -> int:
    """The newest cut that has committed to a mirror, by the versions of its writers; 0 where none has."""
    return writers.get(_writer(pipeline), 0) // _NUMBERS


def _writer(pipeline: str) -> str:
    return f"cdc:{pipeline}:steps"


@dataclass(frozen=True)
class CutCommits:
    pipeline: str
    cut_id: int
    note: Mapping[str, Any]
    """What the note of each commit has."""

    def step(self, index: int) -> StepCommits:
        """Raises LakeError where the numbers do not reach that far."""
        # one more is the first number after the last step
        if not 0 <= index <= _STEPS or (self.cut_id + 1) * _NUMBERS > _MOST:
            raise LakeError(
                f"step {index} of cut {self.cut_id} has no number: a cut has up to {_STEPS} steps, and there may be "
                f"up to {_MOST // _NUMBERS - 1} cuts",
                pipeline=self.pipeline,
            )
        first = self.cut_id * _NUMBERS + index * _PARTS
        return StepCommits(_writer(self.pipeline), first, {**self.note, "step": index}, self.pipeline)


@dataclass(frozen=True)
class StepCommits:
    """The commits of one step. `first` is the number of its first part."""

    writer: str
    first: int
    note: Mapping[str, Any]
    pipeline: str

    def __call__(self, part: int, **more: Any) -> Commit:
        """The commit of the part; `more` is added to its note. Raises LakeError where a step has no room for it."""
        return Commit(self.writer, self._number(part), {**self.note, **more})

    def finding(self, part: int) -> Commit:
        """The commit that notes what was found for this part: it is made before the part's own, so that neither is there
        without the other when a run dies."""
        return Commit(f"{self.writer}:findings", self._number(part), dict(self.note))

    @property
    def last(self) -> int:
        """The last part."""
        return _PARTS - 1

    def _number(self, part: int) -> int:
        if not 0 <= part < _PARTS:
            raise LakeError(
                f"step {self.note.get('step')} of cut {self.note.get('cut')} needs more than {_PARTS} commits: commit "
                f"{part} has no number",
                pipeline=self.pipeline,
            )
        return self.first + part
