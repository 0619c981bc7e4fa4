"""Steps of merged mirrors that come to the same with fewer commits: a thousand tables are made one after another."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.model.steps import ChangeColumns, CreateMirror, NoteState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_pipeline.mirrors.model.steps import Step


def shortened(steps: Sequence[Step]) -> dict[int, Step]:
    """The steps, by their places, without what a merged mirror says of itself and says otherwise later in the cut. One that
    is made is made as it is when its first rows come. The steps of other mirrors stay as they are."""
    found: dict[int, Step] = dict(enumerate(steps))
    by_mirror: dict[str, list[int]] = defaultdict(list)
    for place, step in enumerate(steps):
        if step.state.shards is not None:
            by_mirror[step.state.mirror_id].append(place)
    for places in by_mirror.values():
        while len(places) > 1 and _is_empty_still(found[places[0]], found[places[1]]):
            # the later place: a CREATE that takes another's name comes after it has gone
            found[places[1]] = CreateMirror(found[places[1]].state)
            del found[places.pop(0)]
        tells = [place for place in places if isinstance(found[place], (NoteState, ChangeColumns))]
        for place in tells[:-1]:
            if isinstance(found[place], NoteState):
                del found[place]
    return dict(sorted(found.items()))


def _is_empty_still(made: Step, changed: Step) -> bool:
    if not isinstance(made, CreateMirror):
        return False
    return isinstance(changed, NoteState) or (isinstance(changed, ChangeColumns) and not changed.kept)
