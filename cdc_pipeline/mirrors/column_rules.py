"""What a pipeline says of the columns of its mirrors, beside those that upstream has.

A mirror keeps what held when it was made: its own state has it (`state.MirrorState`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdc_pipeline.errors import LakeError
from cdc_pipeline.mirrors.state import TRACE_NAMES
from cdc_pipeline.mirrors.steps import ApplyRows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdc_pipeline.mirrors.steps import Step


@dataclass(frozen=True)
class ColumnRules:
    """`trace` are the columns of `state.TRACE` that mirrors have which are made from now on, in its order."""

    trace: tuple[str, ...] = TRACE_NAMES

    def as_plain(self) -> dict[str, Any]:
        """What `from_plain` reads back to equal rules, as JSON can hold it."""
        return {"trace": list(self.trace)}

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> ColumnRules:
        return ColumnRules(tuple(plain["trace"]))


def check_order(steps: Iterable[Step], resolved_tso: int | None, pipeline: str) -> None:
    """Where there are no watermarks a change may be delivered again after newer ones, and only the `_commit_ts` of a
    mirror's row tells that. Raises LakeError, before anything is touched, where rows would go into mirrors without it."""
    if resolved_tso is not None:
        return
    states = [step.state for step in steps if isinstance(step, ApplyRows)]
    names = sorted({str(state.name) for state in states if "_commit_ts" not in state.trace})
    if names:
        raise LakeError(
            "metadata_columns: _commit_ts is left out, and the streams have no watermarks: an old change that is delivered "
            f"again could undo a newer row of {', '.join(names)}. Keep _commit_ts in metadata_columns",
            pipeline=pipeline,
        )
