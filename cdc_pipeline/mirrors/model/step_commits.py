"""The numbers of the commits that a cut makes on mirrors: Delta skips one that is not above what its writer has committed.

They grow from cut to cut, within a cut from step to step, and within a step from part to part. The writer of lakes of
format 2 had room for a hundred parts; a cut that was begun with it is finished with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import Commit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc_pipeline.mirrors.model.steps import Numbering


@dataclass(frozen=True)
class _Stride:
    """`writer` is the last word of the writer's name; a step has so many parts, a cut so many steps."""

    writer: str
    parts: int
    steps: int = 1_000_000

    @property
    def cut(self) -> int:
        return self.parts * self.steps


_STRIDES: Mapping[Numbering, _Stride] = {"wide": _Stride("steps", 100_000), "hundreds": _Stride("mirror", 100)}
_MOST = 2**63 - 1


def cut_of_writers(pipeline: str, writers: Mapping[str, int]) -> int:
    """The newest cut that a mirror has something of, by the numbers of its writers; 0 where it has none."""
    return max(
        (writers.get(f"cdc:{pipeline}:{stride.writer}", 0) // stride.cut for stride in _STRIDES.values()), default=0
    )


@dataclass(frozen=True)
class CutCommits:
    """`note` is what each commit says of its cut."""

    pipeline: str
    cut_id: int
    note: Mapping[str, Any]
    numbering: Numbering = "wide"

    def step(self, index: int) -> StepCommits:
        """Raises LakeError where a cut has no room for the step."""
        stride = _STRIDES[self.numbering]
        # one more is the first number after the last step
        if not 0 <= index <= stride.steps or (self.cut_id + 1) * stride.cut > _MOST:
            raise LakeError(
                f"step {index} of cut {self.cut_id} has no number: a cut has up to {stride.steps} steps, and there may be "
                f"up to {_MOST // stride.cut - 1} cuts",
                pipeline=self.pipeline,
            )
        first = self.cut_id * stride.cut + index * stride.parts
        return StepCommits(
            f"cdc:{self.pipeline}:{stride.writer}", first, stride.parts, {**self.note, "step": index}, self.pipeline
        )


@dataclass(frozen=True)
class StepCommits:
    """The commits of one step. `first` is the number of its first part."""

    writer: str
    first: int
    parts: int
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
        return self.parts - 1

    def _number(self, part: int) -> int:
        if not 0 <= part < self.parts:
            raise LakeError(
                f"step {self.note.get('step')} of cut {self.note.get('cut')} needs more than {self.parts} commits: commit "
                f"{part} has no number",
                pipeline=self.pipeline,
            )
        return self.first + part
