"""Reads all tables of a pipeline as of one published cut.

A reader who opens mirrors one by one during a cut sees some of them before it and some after it. `read_cut` uses
`consistent_cuts`, which has the Delta version of every mirror at each cut.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.control_tables import read_rows
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.delta_log import readable_version
from cdc_pipeline.lake.format import require_known_format
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths, table_folders
from cdc_pipeline.mirrors.changes.progress import NO_CUT, PublishedCut, cut_at, published_cut
from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry, published_entries
from cdc_pipeline.mirrors.cuts.stored_plan import is_begun
from cdc_pipeline.mirrors.merge.soft_deletes import live_rows
from cdc_pipeline.mirrors.model.state import DELETED
from cdc_pipeline.mysql.ddl.statements import BASELINE_EVENT
from cdc_pipeline.mysql.model.table import TableName


class CutTables(Mapping[TableName, "DataFrame"]):
    """The tables of a pipeline as of one cut, by name: `cut["shop.orders"]`, `cut["shop", "orders"]` or a TableName.

    A name that no table has finds the only one that differs in case. Columns are those of the mirror. With `soft_delete`,
    deleted rows and `_deleted` are left out. Iteration is in name order.
    """

    def __init__(
        self,
        cut_id: int,
        resolved_tso: int | None,
        tables: dict[TableName, DataFrame],
        begin_later: Mapping[TableName, int] | None = None,
    ) -> None:
        self.cut_id = cut_id
        self.resolved_tso = resolved_tso
        """The moment that the tables show; None if the pipeline has no TSOs."""
        self.begin_later = dict(begin_later or {})
        """Tables that begin with an export of a later moment → its TSO. Before it the cut has their changes only."""
        self._tables = dict(sorted(tables.items()))

    def __getitem__(self, name: TableName | tuple[str, str] | str) -> DataFrame:
        wanted = TableName(*name) if isinstance(name, tuple) else name
        if isinstance(wanted, TableName) and wanted in self._tables:
            return self._tables[wanted]
        matching = [table for table in self._tables if str(table) == str(wanted)]
        matching = matching or [table for table in self._tables if str(table).lower() == str(wanted).lower()]
        if len(matching) != 1:
            later = next((at for table, at in self.begin_later.items() if str(table) == str(wanted)), None)
            raise KeyError(
                name if later is None else f"{wanted} begins with an export of the TSO {later}, after this cut"
            )
        return self._tables[matching[0]]

    def __iter__(self) -> Iterator[TableName]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


def read_cut(spark: SparkSession, lake: str | Path, pipeline: str, tso: int | None = None) -> CutTables:
    """All tables of the pipeline as of the newest cut, or of the newest cut at or below `tso`, as it was published.

    `resolved_tso` of the result is the moment that it shows: with `tso` it may be an earlier one.

    Raises LakeError if the pipeline does not exist, its lake has another format, it has no such cut, or a mirror no longer
    has its version of the cut.
    """
    handle = Lake(spark, LakePaths(str(lake), pipeline))
    if not handle.exists("batches"):
        raise LakeError(f"no pipeline {pipeline!r} in the lake {str(lake)!r}: {handle.paths.home} has no table batches")
    require_known_format(handle)
    newest = published_cut(handle)
    if newest is NO_CUT:
        raise handle.error("no cut is published yet: run the ingest first")
    cut = newest if tso is None else cut_at(handle, tso)
    if cut is NO_CUT:
        found = (
            "cuts have no TSOs, read the newest one" if newest.resolved_tso is None else "it is before the first cut"
        )
        raise handle.error(f"no cut is at or below the TSO {tso}: {found}")
    entries = published_entries(cut, handle.paths)
    paths = mirror_paths(handle, entries)
    unchanged = set() if is_begun(handle, newest) else {(row["mirror_id"], row["version"]) for row in newest.mirrors}
    versions = {
        mirror_id: version_with_rows(handle, path, version, is_unchanged=(mirror_id, version) in unchanged)
        for mirror_id, path, version in ((one.mirror_id, paths[one.mirror_id], one.version) for one in entries)
    }
    if lost := [str(entry.name) for entry in entries if versions[entry.mirror_id] is None]:
        remedy = (
            "read a newer cut"
            if cut.cut_id < newest.cut_id
            else f"another program has changed it: run {pipeline}_rebuild"
        )
        raise handle.error(
            f"{', '.join(lost)}: the version of cut {cut.cut_id} can no longer be read, because its log was shortened or "
            f"its files were replaced more than a week ago: {remedy} (`cdc-pipeline docs reading`)"
        )
    with _any_version(spark):
        mirrors = {one.name: handle.read_path(paths[one.mirror_id], versions[one.mirror_id]) for one in entries}
    tables = {
        one.name: live_rows(mirrors[one.name], keeps_deleted=True).drop(DELETED)
        if one.keeps_deleted
        else mirrors[one.name]
        for one in entries
    }
    return CutTables(cut.cut_id, cut.resolved_tso, tables, _begin_later(handle, cut))


def _begin_later(lake: Lake, cut: PublishedCut) -> dict[TableName, int]:
    """As in `CutTables`."""
    if cut.resolved_tso is None:
        return {}
    rows = read_rows(lake, "ddl_history", ("kind", "=", BASELINE_EVENT), columns=["database", "table", "at"])
    begins = ((cut.selection.mirror_name(TableName(row["database"], row["table"])), row["at"]) for row in rows)
    return {name: at for name, at in begins if at >= cut.resolved_tso}


def version_with_rows(lake: Lake, path: str, version: int, *, is_unchanged: bool) -> int | None:
    """The Delta version with the rows that a mirror had at `version`; None if they cannot be read any more.

    `is_unchanged`: the mirror has the same rows now, though OPTIMIZE may have replaced their files.
    """
    found = readable_version(lake.spark, path, version)
    if found is None and is_unchanged and (state := table_state(lake.spark, path)) is not None:
        return state.version
    return found


@contextlib.contextmanager
def _any_version(spark: SparkSession) -> Iterator[None]:
    """Within the context, Delta reads versions that are older than a week, too. By default it rejects them even if their
    files were replaced yesterday."""
    name = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
    previous = spark.conf.get(name, None)
    spark.conf.set(name, "false")
    try:
        yield
    finally:
        if previous is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, previous)


def mirror_paths(lake: Lake, entries: Iterable[MirrorEntry]) -> dict[str, str]:
    """The current paths of a cut's mirrors, by mirror id: a RENAME or DROP may have moved them since.

    Raises LakeError if one is no longer in the lake.
    """
    found: dict[str, str] = {}
    missing: dict[str, TableName] = {}
    for entry in entries:
        if _mirror_id(lake.spark, entry.path) == entry.mirror_id:
            found[entry.mirror_id] = entry.path
        else:
            missing[entry.mirror_id] = entry.name
    if missing and lake.paths.is_local:
        for kind in ("mirror", "dropped"):
            for path in table_folders(lake.spark, f"{lake.paths.home}/{kind}"):
                mirror_id = _mirror_id(lake.spark, path)
                if mirror_id is not None and mirror_id in missing:
                    found[mirror_id] = path
                    del missing[mirror_id]
    if missing:
        lost = ", ".join(map(str, missing.values()))
        raise lake.error(f"mirrors of this cut are no longer in the lake: {lost}")
    return found


def _mirror_id(spark: SparkSession, path: str) -> str | None:
    state = table_state(spark, path)
    return None if state is None else state.properties.get("cdc.mirror_id")
