"""Finishes a begun cut before a rebuild or a release, or undoes its folder moves if it cannot be finished."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.faults import affects_all_tables
from cdc_pipeline.lake.paths import first_line, table_folders
from cdc_pipeline.lake.restored_tables import RestoredTableError
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_report import published_entries
from cdc_pipeline.mirrors.cuts.quarantine import QuarantinePolicy
from cdc_pipeline.mirrors.cuts.reading import mirror_paths
from cdc_pipeline.mirrors.cuts.stored_plan import is_begun
from cdc_pipeline.mirrors.execution.mirror_folders import move_mirror
from cdc_pipeline.mirrors.settings.column_rules import MaskSaltError

if TYPE_CHECKING:
    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.mirrors.changes.progress import PublishedCut
    from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker


def finish_begun_cut(maker: CutMaker, *, abandon: bool) -> bool:
    """Finishes a begun cut, then applies all complete changes. A table whose step fails is quarantined at once.

    If a new cut fails, its changes remain for a later run. Returns True if a begun cut failed and the caller replaces it;
    without `abandon` that raises the cut's error instead. Errors of the disk, the lake or Spark are always raised.
    """
    try:
        replace(maker, quarantine_policy=QuarantinePolicy(1)).advance()
    except Exception as error:
        begun = is_begun(maker.lake, published_cut(maker.lake))
        if isinstance(error, (MaskSaltError, RestoredTableError)) and not begun:
            maker.report(f"no new cut is made before the rebuild: {first_line(error)}")
            return False
        if affects_all_tables(error) or (begun and not abandon) or (isinstance(error, LakeError) and not begun):
            raise
        maker.report(
            f"{'the begun cut' if begun else 'a new cut'} failed, the run continues without it: {first_line(error)}"
        )
        return begun
    return False


def move_mirrors_back(lake: Lake, published: PublishedCut) -> None:
    """Moves each mirror's folder to its path at the published cut, and mirrors that the cut does not have to `dropped/`.

    Undoes the moves of an abandoned cut. Rows and columns stay as they are.
    """
    entries = published_entries(published, lake.paths)
    current = mirror_paths(lake, entries)
    wanted = {current[entry.mirror_id]: entry.path for entry in entries}
    displaced = {path: target for path, target in wanted.items() if path != target}
    folders = table_folders(lake.spark, f"{lake.paths.home}/mirror")
    unknown = [path for path in folders if path not in wanted and table_state(lake.spark, path) is not None]
    # two mirrors may have swapped paths, so all of them leave first
    away = f"{lake.paths.home}/dropped/given-up-{uuid.uuid4().hex[:8]}"
    interim = {path: f"{away}/{number}" for number, path in enumerate([*displaced, *unknown])}
    for path, target in interim.items():
        move_mirror(lake, path, target)
    for path, target in displaced.items():
        move_mirror(lake, interim[path], target)
