"""Which steps of a cut depend on one another, and where they take mirrors."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.steps import DropMirror, RenameMirror, RestoreMirror, step_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_pipeline.mirrors.steps import Step
    from cdc_pipeline.resources.lake import LakePaths
    from cdc_pipeline.schemas.table import TableName


def later_places(paths: LakePaths, steps: Sequence[Step]) -> dict[str, list[str]]:
    """The folders to which the steps move mirrors, by mirror id."""
    places: dict[str, list[str]] = defaultdict(list)
    for step in steps:
        if isinstance(step, (RenameMirror, RestoreMirror)):
            places[step.state.mirror_id].append(paths.mirror(step.state.name))
        elif isinstance(step, DropMirror):
            places[step.state.mirror_id].append(paths.dropped(step.state.name, step.mark))
    return places


def independent_chains(steps: Sequence[Step]) -> list[list[int]]:
    """The steps' indexes as chains: steps in different chains touch no name in common."""
    leader: dict[TableName, TableName] = {}

    def find(name: TableName) -> TableName:
        leader.setdefault(name, name)
        while leader[name] != name:
            name = leader[name]
        return name

    for step in steps:
        first, *others = step_names(step)
        for other in others:
            leader[find(other)] = find(first)
        find(first)
    chains: dict[TableName, list[int]] = defaultdict(list)
    for index, step in enumerate(steps):
        chains[find(step_names(step)[0])].append(index)
    return list(chains.values())
