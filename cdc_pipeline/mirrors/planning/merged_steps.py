"""Merges steps of merged mirrors: a thousand CREATE TABLE statements become one commit."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.model.steps import ChangeColumns, CreateMirror, UpdateState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_pipeline.mirrors.model.steps import Step


def coalesced(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps, without states of merged mirrors that a later step of the cut overwrites.

    A merged mirror is created as it is when its first rows arrive. The steps of other mirrors stay as they are.
    """
    found: dict[int, Step] = dict(enumerate(steps))
    by_mirror: dict[str, list[int]] = defaultdict(list)
    for index, step in enumerate(steps):
        if step.state.source_tables is not None:
            by_mirror[step.state.mirror_id].append(index)
    for indexes in by_mirror.values():
        while len(indexes) > 1 and _is_still_empty(found[indexes[0]], found[indexes[1]]):
            # the later index: the name of the mirror may be free only after a step between the two
            found[indexes[1]] = CreateMirror(found[indexes[1]].state)
            del found[indexes.pop(0)]
        with_state = [index for index in indexes if isinstance(found[index], (UpdateState, ChangeColumns))]
        for index in with_state[:-1]:
            if isinstance(found[index], UpdateState):
                del found[index]
    return tuple(found[index] for index in sorted(found))


def _is_still_empty(first: Step, second: Step) -> bool:
    """Whether `first` creates the mirror and `second` changes it before rows arrive."""
    if not isinstance(first, CreateMirror):
        return False
    return isinstance(second, UpdateState) or (isinstance(second, ChangeColumns) and not second.kept_columns)
