"""Versions of the commits that a cut makes on mirrors: Delta skips a commit whose writer has committed its version already.

Versions grow from cut to cut, within a cut from step to step, and within a step from part to part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import Commit

_PARTS = 100_000
"""Maximum number of commits of a step."""
_STEPS = 1_000_000
"""Maximum number of steps of a cut."""
VERSIONS_OF_CUT = _PARTS * _STEPS
"""Versions reserved for a cut."""
_MOST = 2**63 - 1


@dataclass(frozen=True)
class CutCommits:
    pipeline: str
    cut_id: int
    note: Mapping[str, Any]
    """Included in the note of each commit."""

    def step(self, index: int) -> StepCommits:
        """The commits of a step. Raises LakeError if the step or the cut has no version left."""
        # index _STEPS is allowed: `DropMirror` commits with the first version after its own step
        if not 0 <= index <= _STEPS or (self.cut_id + 1) * VERSIONS_OF_CUT > _MOST:
            raise LakeError(
                f"step {index} of cut {self.cut_id} has no commit version: a cut has at most {_STEPS} steps, and a lake "
                f"has at most {_MOST // VERSIONS_OF_CUT - 1} cuts",
                pipeline=self.pipeline,
            )
        first = self.cut_id * VERSIONS_OF_CUT + index * _PARTS
        return StepCommits(f"cdc:{self.pipeline}:steps", first, {**self.note, "step": index}, self.pipeline)


@dataclass(frozen=True)
class StepCommits:
    """The commits of one step, one for each part."""

    writer: str
    first: int
    """Version of the first part."""
    note: Mapping[str, Any]
    pipeline: str

    def __call__(self, part: int) -> Commit:
        """The commit of the part. Raises LakeError if the step has too many parts."""
        return Commit(self.writer, self._version(part), dict(self.note))

    def for_gaps(self, part: int) -> Commit:
        """The commit for gaps of the part. Write it before the part's own commit, so that a crash cannot lose the gaps."""
        return Commit(f"{self.writer}:findings", self._version(part), dict(self.note))

    @property
    def last(self) -> int:
        """The last part."""
        return _PARTS - 1

    def _version(self, part: int) -> int:
        if not 0 <= part < _PARTS:
            raise LakeError(
                f"step {self.note.get('step')} of cut {self.note.get('cut')} needs more than {_PARTS} commits: commit "
                f"{part} has no version",
                pipeline=self.pipeline,
            )
        return self.first + part
