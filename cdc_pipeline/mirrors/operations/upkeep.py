"""Upkeep between batches, so that the thousandth batch costs as much as the tenth.

Every hundredth cut joins the small files of a table and shortens its log. Each table has its own turn among the hundred
cuts, so that no batch has to wait for all of them. `Maintenance` does what takes longer: large files and VACUUM.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from cdc_pipeline.lake.control_tables import compact_rows
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.paths import CONTROL_TABLES, OWN_TABLES, first_line
from cdc_pipeline.lake.upkeep import compact_small_files, shorten_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.mirrors.cuts.cut_report import CutReport

EVERY = 100
"""Cuts, or versions of a mirror, from one turn of a table to the next."""
KEPT_VERSIONS = 300
"""Versions of a mirror and of `change_log` that stay readable, for queries of a cut's versions and for streams."""
KEPT_OWN_VERSIONS = 100
"""Versions of the other tables, which nobody reads at an earlier version."""


def keep_small(lake: Lake, report: CutReport, say: Callable[[str], None]) -> None:
    """Keeps the tables small whose turn it is. Call it as the only writer, after a run has advanced the mirrors.

    An error, such as a conflict with another writer, leaves the table to its next turn: the run has done its work.
    """
    turn = report.cut_id if report.published else report.streams.last_batch
    for number, table in enumerate(OWN_TABLES):
        if turn >= EVERY and turn % EVERY == number * EVERY // len(OWN_TABLES):
            keep_table_small(lake, table, lake.paths.table(table), say)
    for entry in report.mirrors:
        before = report.versions_before.get(entry.mirror_id, entry.version)
        if entry.version >= EVERY and _turns(entry.mirror_id, before) != _turns(entry.mirror_id, entry.version):
            keep_table_small(lake, "", entry.path, say)


def _turns(mirror_id: str, version: int) -> int:
    """How many turns a mirror has had up to this version. Mirrors of equal versions have their turns in different cuts."""
    return (version + zlib.crc32(mirror_id.encode()) % EVERY) // EVERY


def keep_table_small(lake: Lake, own_table: str, path: str, say: Callable[[str], None]) -> None:
    """Joins the table's small files and shortens its log. An error is only reported. `own_table`: empty for a mirror."""
    name = path.removeprefix(f"{lake.paths.home}/")
    try:
        if own_table in CONTROL_TABLES and compact_rows(lake, own_table):
            return
        if table_state(lake.spark, path) is None:
            return
        removed, added = compact_small_files(lake.spark, path)
        shorten_log(lake.spark, path, KEPT_VERSIONS if own_table in ("", "change_log") else KEPT_OWN_VERSIONS)
    except Exception as error:  # the cut is published, and its results are to be reported
        say(f"{name}: small files and old commits stay until the next time: {first_line(error)}")
        return
    if removed:
        say(f"{name}: {removed} small files joined into {added}")
