"""The dependencies between the steps of a cut, and the folders to which they move mirrors."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from cdc_pipeline.mysql.model.change_names import folded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.model.steps import Step
    from cdc_pipeline.mysql.model.table import TableName


def later_folders(paths: LakePaths, steps: Sequence[Step]) -> dict[str, list[str]]:
    """Mirror id → the folders to which the steps move the mirror, in order."""
    folders: dict[str, list[str]] = defaultdict(list)
    for step in steps:
        if (folder := step.folder_after(paths)) is not None:
            folders[step.state.mirror_id].append(folder)
    return folders


def independent_chains(steps: Sequence[Step]) -> list[list[int]]:
    """Groups the indexes of the steps: steps in different chains share no name, in any case, and can run in parallel."""
    leader: dict[TableName, TableName] = {}

    def find(name: TableName) -> TableName:
        leader.setdefault(name, name)
        while leader[name] != name:
            name = leader[name]
        return name

    for step in steps:
        first, *others = map(folded, step.names())
        for other in others:
            leader[find(other)] = find(first)
        find(first)
    chains: dict[TableName, list[int]] = defaultdict(list)
    for index, step in enumerate(steps):
        chains[find(folded(step.names()[0]))].append(index)
    return list(chains.values())
