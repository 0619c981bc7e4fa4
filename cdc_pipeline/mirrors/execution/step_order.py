"""Which steps of a cut depend on one another, and where they take mirrors."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.model.steps import Step
    from cdc_pipeline.mysql.model.table import TableName


def later_places(paths: LakePaths, steps: Sequence[Step]) -> dict[str, list[str]]:
    """The folders to which the steps move mirrors, by mirror id."""
    places: dict[str, list[str]] = defaultdict(list)
    for step in steps:
        if (place := step.folder_after(paths)) is not None:
            places[step.state.mirror_id].append(place)
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
        first, *others = step.names()
        for other in others:
            leader[find(other)] = find(first)
        find(first)
    chains: dict[TableName, list[int]] = defaultdict(list)
    for index, step in enumerate(steps):
        chains[find(step.names()[0])].append(index)
    return list(chains.values())
