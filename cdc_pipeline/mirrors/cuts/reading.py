"""Reads all tables of a pipeline as of one moment of upstream: a published cut, or any TSO between two cuts.

A reader who opens mirrors one by one during a cut sees some of them before it and some after it. `read_cut` uses
`consistent_cuts`, which has the Delta version of every mirror at each cut.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.claims import CLAIMS
from cdc_pipeline.dialects.releases import RELEASES
from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.delta_log import readable_version
from cdc_pipeline.lake.format import require_known_format
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths, path_segment, remove_folder, table_folders
from cdc_pipeline.lake.tables.consistent_cuts import cuts_since_rebuild
from cdc_pipeline.mirrors.changes.held_rows import APPROVALS, applied_statements, approved_statements, resumed_tables
from cdc_pipeline.mirrors.changes.progress import (
    NO_CUT,
    PublishedCut,
    cut_at,
    published_cut,
    read_progress,
)
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import published_entries
from cdc_pipeline.mirrors.cuts.quarantine import QuarantinePolicy
from cdc_pipeline.mirrors.cuts.stored_plan import is_begun
from cdc_pipeline.mirrors.merge.soft_deletes import live_rows
from cdc_pipeline.mirrors.model.state import DELETED
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mirrors.settings.ddl_policy import POLICY_JSON, quarantined_tables
from cdc_pipeline.mirrors.settings.selection import SELECTION_JSON
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.table import TableName

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry

_READ_ONLY = ("raw_topic_snapshot", CLAIMS, RELEASES, "change_log", "watermarks", "batches", APPROVALS)
_CLONED = ("ddl_history", "dead_letters")
_SIDE_BY_SIDE = 2


class LostMirrorError(LakeError):
    """A mirror of a cut is no longer in the lake."""


class CutTables(Mapping[TableName, "DataFrame"]):
    """The tables of a pipeline as of one moment, by name: `cut["shop.orders"]`, `cut["shop", "orders"]` or a TableName.

    A name that no table has finds the only one that differs in case. Columns are those of the mirror. With `soft_delete`,
    deleted rows and `_deleted` are left out. Iteration is in name order. `close()`, also through `with`, removes the
    scratch tables of a read between two cuts; otherwise the end of the process does.
    """

    def __init__(
        self, cut_id: int, resolved_tso: int | None, tables: dict[TableName, DataFrame], scratch: _Scratch | None = None
    ) -> None:
        self.cut_id = cut_id
        """The published cut at or before the moment; 0 if there is none."""
        self.resolved_tso = resolved_tso
        """The moment; None if the pipeline has no TSOs."""
        self._tables = dict(sorted(tables.items()))
        self._scratch = scratch

    def __getitem__(self, name: TableName | tuple[str, str] | str) -> DataFrame:
        wanted = TableName(*name) if isinstance(name, tuple) else name
        if isinstance(wanted, TableName) and wanted in self._tables:
            return self._tables[wanted]
        matching = [table for table in self._tables if str(table) == str(wanted)]
        matching = matching or [table for table in self._tables if str(table).lower() == str(wanted).lower()]
        if len(matching) != 1:
            raise KeyError(name)
        return self._tables[matching[0]]

    def __iter__(self) -> Iterator[TableName]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __enter__(self) -> CutTables:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._scratch is not None:
            self._scratch.remove()


def read_cut(
    spark: SparkSession,
    lake: str | Path,
    pipeline: str,
    tso: int | None = None,
    *,
    scratch: str | Path | None = None,
    mask_salt: str = "",
) -> CutTables:
    """All tables of the pipeline as of the newest cut, or as of `tso`.

    Between two cuts, CutMaker applies the later changes, DDL included, to shallow clones of the cut before. The clones are
    under `scratch`, a folder that all Spark workers can reach; by default a temporary folder of this machine, or a hidden
    folder of a remote lake. The lake itself is only read. Repairs of a rebuild also apply to moments before the rebuild.

    If a mirror has no longer the version of that cut, because its log was shortened or its files were replaced more than a
    week ago, CutMaker applies all changes from the beginning: the result is the same, but it takes as long as a rebuild.

    `mask_salt` is required between two cuts if the pipeline hashes columns (`mask`).

    Raises LakeError if the pipeline does not exist, its lake has another format, it has no cut yet, or the streams are not
    complete up to `tso`.
    """
    handle = Lake(spark, LakePaths(str(lake), pipeline))
    if not handle.exists("batches"):
        raise LakeError(f"no pipeline {pipeline!r} in the lake {str(lake)!r}: {handle.paths.home} has no table batches")
    require_known_format(handle)
    newest = published_cut(handle)
    if newest is NO_CUT:
        raise LakeError("no cut is published yet: run the ingest first", pipeline=pipeline)
    base = newest if tso in (None, newest.resolved_tso) else cut_at(handle, tso)
    mirrors = _readable_mirrors(handle, base, newest)
    if mirrors is not None and (tso is None or base.resolved_tso == tso):
        return _at_cut(handle, base, mirrors)
    if (tso := base.resolved_tso if tso is None else tso) is None:
        mirror_paths(handle, published_entries(base, handle.paths))
        raise LakeError(
            f"a mirror no longer has the version of the newest cut, because another program has changed it: run "
            f"{pipeline}_rebuild",
            pipeline=pipeline,
        )
    complete = read_progress(handle, newest)
    if complete.resolved_tso is None or complete.resolved_tso < tso:
        raise LakeError(
            f"the streams are complete up to {_complete(complete.resolved_tso)}, not up to the TSO {tso}",
            pipeline=pipeline,
        )
    folder = _Scratch(spark, _scratch_folder(handle.paths, scratch))
    try:
        settings = _settings(handle, tso, mask_salt)
        if mirrors is None or _needs_earlier_cuts(handle, base, tso):
            base, mirrors = NO_CUT, []
        return _between(handle, base, mirrors, tso, folder, settings)
    except BaseException:
        folder.remove()
        raise


def _upstream_rows(mirror: DataFrame, entry: MirrorEntry) -> DataFrame:
    """The rows that upstream had, without deleted rows that the mirror keeps."""
    return live_rows(mirror, keeps_deleted=True).drop(DELETED) if entry.keeps_deleted else mirror


def _complete(tso: int | None) -> str:
    return "no TSO: a partition has no watermark yet, or the encoder sends none" if tso is None else f"the TSO {tso}"


@dataclass(frozen=True)
class _MirrorAt:
    """A mirror of a cut, and where and at which Delta version it can be read."""

    entry: MirrorEntry
    path: str
    version: int


def _readable_mirrors(lake: Lake, cut: PublishedCut, newest: PublishedCut) -> list[_MirrorAt] | None:
    """The mirrors of the cut with the versions at which they can be read; None if one of them cannot be read any more.

    `newest`: the newest cut. A mirror that has not changed since `cut` can be read as it is now.
    """
    entries = published_entries(cut, lake.paths)
    unchanged = set() if is_begun(lake, newest) else {(row["mirror_id"], row["version"]) for row in newest.mirrors}
    try:
        current = mirror_paths(lake, entries)
    except LostMirrorError:
        return None
    found = []
    for entry in entries:
        path = current[entry.mirror_id]
        version = readable_version(lake.spark, path, entry.version)
        if version is None and (entry.mirror_id, entry.version) in unchanged:
            state = table_state(lake.spark, path)
            version = None if state is None else state.version
        if version is None:
            return None
        found.append(_MirrorAt(entry, path, version))
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


def _at_cut(lake: Lake, cut: PublishedCut, mirrors: Iterable[_MirrorAt]) -> CutTables:
    with _any_version(lake.spark):
        tables = {
            mirror.entry.name: _upstream_rows(
                lake.spark.read.format("delta").option("versionAsOf", mirror.version).load(mirror.path), mirror.entry
            )
            for mirror in mirrors
        }
    return CutTables(cut.cut_id, cut.resolved_tso, tables)


def _needs_earlier_cuts(lake: Lake, base: PublishedCut, tso: int) -> bool:
    """Whether the mirrors of `base` do not suffice to compute the tables at the TSO.

    A table that waited has been approved since, so `ddl_history` no longer says what it waited for. RECOVER and FLASHBACK
    restore rows that an earlier cut has dropped.
    """
    if base is NO_CUT:
        return False
    if resumed_tables(base.held, approved_statements(lake)):
        return True
    restoring = F.upper("sql").rlike("RECOVER|FLASHBACK") & (F.col("commit_ts") <= tso)
    if base.resolved_tso is not None:
        restoring &= F.col("commit_ts") > base.resolved_tso
    return not lake.read("ddl_history").where(restoring).isEmpty()


def _between(
    lake: Lake, base: PublishedCut, mirrors: Iterable[_MirrorAt], tso: int, folder: _Scratch, settings: CutSettings
) -> CutTables:
    """Applies to clones of the `mirrors` of `base` what follows it up to `tso`."""
    view = LakePaths(folder.path, lake.paths.pipeline, {name: lake.paths.table(name) for name in _READ_ONLY})
    with _any_version(lake.spark):
        for mirror in mirrors:
            _clone(lake.spark, mirror.path, view.mirror(mirror.entry.name), mirror.version)
    for table in _CLONED:
        _clone(lake.spark, lake.paths.table(table), view.table(table), None)
    if base is not NO_CUT:
        cuts = lake.read("consistent_cuts").where(F.col("cut_id") == base.cut_id)
        cuts.write.format("delta").save(view.table("consistent_cuts"))
    maker = CutMaker(
        Lake(lake.spark, view),
        "read_cut",
        settings.time_zone,
        _SIDE_BY_SIDE,
        lambda _: None,
        settings.keys,
        settings.policy,
        settings.selection,
        settings.columns,
        # without a cut to start from, a quarantined table fails again
        QuarantinePolicy(None, quarantined_tables(published_cut(lake).held)),
        applied_statements(lake),
    )
    report = maker.advance(up_to=tso)
    tables = {entry.name: _upstream_rows(lake.read_path(entry.path), entry) for entry in report.mirrors}
    return CutTables(base.cut_id, tso, tables, folder)


def mirror_paths(lake: Lake, entries: Iterable[MirrorEntry]) -> dict[str, str]:
    """The current paths of a cut's mirrors, by mirror id: a RENAME or DROP may have moved them since.

    Raises LostMirrorError if one is no longer in the lake.
    """
    found: dict[str, str] = {}
    missing: dict[str, TableName] = {}
    for entry in entries:
        if _mirror_id(lake.spark, entry.path) == entry.mirror_id:
            found[entry.mirror_id] = entry.path
        else:
            missing[entry.mirror_id] = entry.name
    if missing:
        for kind in ("mirror", "dropped"):
            for path in table_folders(lake.spark, f"{lake.paths.home}/{kind}"):
                mirror_id = _mirror_id(lake.spark, path)
                if mirror_id is not None and mirror_id in missing:
                    found[mirror_id] = path
                    del missing[mirror_id]
    if missing:
        lost = ", ".join(map(str, missing.values()))
        raise LostMirrorError(f"mirrors of this cut are no longer in the lake: {lost}", pipeline=lake.paths.pipeline)
    return found


def _mirror_id(spark: SparkSession, path: str) -> str | None:
    state = table_state(spark, path)
    return None if state is None else state.properties.get("cdc.mirror_id")


def _settings(lake: Lake, tso: int, salt: str) -> CutSettings:
    """The settings of the newest cut, with the selection of the newest cut at the TSO, else of the first one after it."""
    cuts = cuts_since_rebuild(lake, "resolved_tso", "time_zone", "keys", "ddl_policy", "selection", "column_rules")
    newest = cuts[-1]
    exact = [cut for cut in cuts if cut["resolved_tso"] == tso]
    later = [cut for cut in cuts if cut["resolved_tso"] is not None and cut["resolved_tso"] > tso]
    after = exact[-1] if exact else later[0] if later else newest
    columns = ColumnRules.from_json(newest["column_rules"], salt)
    keys = {table: tuple(columns) for table, columns in (newest["keys"] or {}).items()}
    selection = SELECTION_JSON.from_json(after["selection"])
    return CutSettings(newest["time_zone"], keys, POLICY_JSON.from_json(newest["ddl_policy"]), selection, columns)


def _clone(spark: SparkSession, source: str, target: str, version: int | None) -> None:
    at = "" if version is None else f" VERSION AS OF {int(version)}"
    spark.sql(f"CREATE TABLE delta.{quoted(target)} SHALLOW CLONE delta.{quoted(source)}{at}")


def _scratch_folder(paths: LakePaths, scratch: str | Path | None) -> str:
    if scratch is not None:
        return f"{scratch}/{uuid.uuid4().hex}"
    if paths.is_local:
        return tempfile.mkdtemp(prefix=f"cdc_pipeline-{path_segment(paths.pipeline)}-")
    return f"{paths.home}/.as_of/{uuid.uuid4().hex}"


class _Scratch:
    """A folder that is removed by `remove`, or at the latest when the process ends."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path
        self._remove = weakref.finalize(self, _remove_folder, spark, path)

    def remove(self) -> None:
        self._remove()


def _remove_folder(spark: SparkSession, path: str) -> None:
    if LakePaths(path, "").is_local:
        shutil.rmtree(path, ignore_errors=True)  # works without a Spark session too
    else:
        remove_folder(spark, path)
