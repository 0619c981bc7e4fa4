"""Lakes whose tables were restored to an earlier version with Delta's RESTORE.

RESTORE reverts rows and columns, but not the (writer, version) pairs that make each commit unique (`lake/delta.py`), so
Delta would skip later commits silently. If all tables are at one cut, `accept_restore` resets the pairs too.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable

from cdc_pipeline.dialects.claims import CLAIMS
from cdc_pipeline.dialects.decoded_tables import OTHER_TABLES
from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import committed_version, set_committed_versions, table_state
from cdc_pipeline.lake.delta_log import committed_versions, has_same_files, newest_operation, snapshot_at, snapshot_of
from cdc_pipeline.lake.paths import OWN_TABLES, subfolders
from cdc_pipeline.mirrors.changes.progress import PublishedCut, published_cut
from cdc_pipeline.mirrors.model.step_commits import newest_cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import Row, SparkSession

    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.lake.paths import LakePaths

_CUTS = "consistent_cuts"
_RAW, _BATCHES = "raw_topic_snapshot", "batches"
_DECODED = (CLAIMS, "change_log", *OTHER_TABLES)
_RESTORE = "RESTORE"
_TAKEN_BACK = "cdc.taken_back_to"
"""A parameter of the commit that resets a restored table's writers: the version that it was restored to."""
_UPKEEP = re.compile("OPTIMIZE|VACUUM|REORG")
"""Operations that change no row."""


def current_cut(lake: Lake) -> PublishedCut:
    """The newest published cut. Raises LakeError if a later one was committed, but a RESTORE reverted it."""
    # read before the cut: a concurrent run may publish in between
    committed = committed_version(lake.spark, lake.paths.table(_CUTS), lake.paths.app_id(_CUTS)) or 0
    published = published_cut(lake)
    if published.cut_id < committed:
        raise LakeError(
            f"consistent_cuts ends with cut {published.cut_id}, but cut {committed} was committed: the table was restored "
            "and changed since. RESTORE it again and start a run, or replace the pipeline's folder by a copy "
            "(docs/operations.md, Restore the lake)",
            pipeline=lake.paths.pipeline,
        )
    return published


def accept_restore(lake: Lake, report: Callable[[str], None]) -> bool:
    """If the newest commit of `consistent_cuts` is a RESTORE, resets every table's writers to the version that the table was
    restored to. Returns whether it did.

    Each table gets one commit, `consistent_cuts` the last, so an interrupted reset resumes. Raises LakeError before any
    change if a table is not at the restored cut; the error lists each such table and what to do.
    """
    if not lake.exists(_CUTS) or newest_operation(lake.spark, lake.paths.table(_CUTS)) != _RESTORE:
        return False
    published = published_cut(lake)
    since = _newest_time(lake.spark, lake.paths.table(_CUTS))
    tables = list(_tables(lake, since))
    begun = _cut_of(tables, lake.paths, "cut_plans") == published.cut_id + 1
    problems = [
        *(
            problem
            for table in tables
            if (problem := table.problem(lake.paths, published.cut_id, _needed_until(table, tables), begun=begun))
        ),
        *_misplaced(lake, published, begun=begun),
    ]
    if problems:
        raise LakeError(
            f"consistent_cuts is restored to cut {published.cut_id}, but other tables are not at that cut. Nothing was "
            f"changed. {'; '.join(problems)}. See docs/operations.md, Restore the lake",
            pipeline=lake.paths.pipeline,
        )
    for table in sorted(tables, key=lambda table: table.name == _CUTS):
        if table.stale:
            set_committed_versions(lake.spark, table.path, table.stale, table.note, {_TAKEN_BACK: str(table.content)})
            report(f"{table.name} is restored to version {table.content}: later commits count no more")
    report(f"the lake is restored to cut {published.cut_id}: the pipeline continues from there")
    return True


@dataclass(frozen=True)
class _Table:
    """The state of a table according to its log."""

    name: str
    path: str
    content: int
    """The version whose rows it has: an earlier one after a RESTORE."""
    then: dict[str, int]
    """The writers of that version."""
    now: dict[str, int]
    """The writers of the newest version."""
    lost: dict[int, datetime]
    """The times of the commits that the RESTORE reverted, by version."""
    commits: dict[int, datetime]
    """The times of the other commits, by version."""
    note: str

    @property
    def newest(self) -> datetime:
        """The time of the newest commit that was not reverted."""
        return max(self.commits.values())

    @property
    def stale(self) -> dict[str, int]:
        """The writers to reset, with their versions at `content`."""
        return {
            writer: self.then.get(writer, 0) for writer, number in self.now.items() if number != self.then.get(writer)
        }

    def cut_of(self, paths: LakePaths) -> int:
        """The newest cut that has committed to the table."""
        own = (self.then.get(f"cdc:{paths.pipeline}:{name}", 0) for name in ("ddl_results", "cut_plans", _CUTS))
        return max(*own, newest_cut(paths.pipeline, self.then))

    def problem(self, paths: LakePaths, cut_id: int, needed: datetime, *, begun: bool) -> str | None:
        """Why the table is not at the cut; None if it is. Other tables depend on its commits up to the time `needed`."""
        best = max(version for version, at in {**self.commits, **self.lost}.items() if version == 0 or at <= needed)
        if any(at <= needed for at in self.lost.values()):
            return (
                f"{self.name} is restored to version {self.content}, but other tables depend on later versions: RESTORE it "
                f"to version {best}"
            )
        if (cut := self.cut_of(paths)) > cut_id + begun:
            return f"{self.name} has changes of cut {cut}: RESTORE it to version {best}"
        return None


def _needed_until(table: _Table, tables: list[_Table]) -> datetime:
    """The time up to which a table's commits must exist: the newest commit of the tables derived from it.

    Decoded tables derive from the raw snapshot, `batches` from the decoded tables, and cuts from all of them.
    """
    derived = {_RAW: (*_DECODED, _BATCHES, _CUTS)}.get(
        table.name, (_BATCHES, _CUTS) if table.name in _DECODED else (_CUTS,)
    )
    return max(other.newest for other in tables if other.name in derived)


def _cut_of(tables: list[_Table], paths: LakePaths, name: str) -> int:
    """The newest cut that has committed to the table of that name; 0 if there is no such table."""
    return next((table.cut_of(paths) for table in tables if table.name == name), 0)


def _tables(lake: Lake, since: datetime) -> Iterator[_Table]:
    table_paths = {name: lake.paths.table(name) for name in OWN_TABLES}
    table_paths |= {path.removeprefix(f"{lake.paths.home}/"): path for path in _mirror_folders(lake)}
    for name, path in table_paths.items():
        if table_state(lake.spark, path) is not None:
            yield _table(lake, name, path, since)


def _newest_time(spark: SparkSession, path: str) -> datetime:
    return _utc(DeltaTable.forPath(spark, path).history(1).select("timestamp").collect()[0][0])


def _table(lake: Lake, name: str, path: str, since: datetime) -> _Table:
    """`since`: when `consistent_cuts` was restored. A reset after that time was interrupted, so it is ignored here."""
    columns = ("version", "timestamp", "operation", "operationParameters", "userMetadata")
    history = DeltaTable.forPath(lake.spark, path).history().select(*columns).collect()
    commits = {row["version"]: row for row in history if not _UPKEEP.match(row["operation"])}
    last, snapshot = max(commits), snapshot_of(lake.spark, path)
    now = then = committed_versions(lake.spark, snapshot)
    if _is_reset(commits[last]) and _utc(commits[last]["timestamp"]) >= since:
        last = max(version for version in commits if version < last)
    content = last
    if commits[last]["operation"] == _RESTORE:
        content = _restored_version(lake.paths, name, commits[last], history)
        source = snapshot_at(lake.spark, path, content)
        if not has_same_files(source, snapshot):
            raise LakeError(
                f"{name} is restored ({commits[last]['operationParameters']}), but its files are not those of version "
                f"{content}: RESTORE it again, by version",
                pipeline=lake.paths.pipeline,
            )
        then = committed_versions(lake.spark, source)
    times = {version: _utc(row["timestamp"]) for version, row in commits.items()}
    return _Table(
        name,
        path,
        content,
        then,
        now,
        {version: at for version, at in times.items() if content < version < last},
        {version: at for version, at in times.items() if version <= content},
        _note_at(commits, content),
    )


def _is_reset(commit: Row) -> bool:
    return _TAKEN_BACK in (commit["operationParameters"].get("properties") or "")


def _restored_version(paths: LakePaths, name: str, restore: Row, history: list[Row]) -> int:
    parameters = restore["operationParameters"]
    if parameters.get("version") is not None:
        return int(parameters["version"])
    time = datetime.fromisoformat(parameters["timestamp"]).replace(tzinfo=timezone.utc)
    before = [
        row["version"] for row in history if row["version"] < restore["version"] and _utc(row["timestamp"]) <= time
    ]
    if not before:
        raise LakeError(f"{name} is restored to {time}, before its first commit", pipeline=paths.pipeline)
    return int(max(before))


def _utc(local: datetime) -> datetime:
    """Converts a timestamp of PySpark, which is in the time zone of this process."""
    return local.astimezone(timezone.utc)


def _note_at(commits: dict[int, Row], content: int) -> str:
    """The newest note of this package up to that version. A source reads its positions from the newest note."""
    notes = (commits[version]["userMetadata"] for version in sorted(commits, reverse=True) if version <= content)
    return next((note for note in notes if note and "run_id" in _parse(note)), "{}")


def _parse(note: str) -> dict[str, Any]:
    try:
        parsed = json.loads(note)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _mirror_folders(lake: Lake) -> list[str]:
    return [
        path
        for database in subfolders(lake.spark, f"{lake.paths.home}/mirror")
        for path in subfolders(lake.spark, database)
    ]


def _misplaced(lake: Lake, published: PublishedCut, *, begun: bool) -> Iterator[str]:
    """Problems: mirrors that are not at their path of the cut, and folders of mirrors that the cut does not have."""
    expected = {}
    for name, row in zip(sorted(published.names), sorted(published.mirrors, key=_by_name), strict=True):
        path = lake.paths.mirror(name)
        expected[path] = row
        state = table_state(lake.spark, path)
        if state is None or state.properties.get("cdc.mirror_id") != row["mirror_id"]:
            yield f"the mirror {name} is not at its path of the cut: a later RENAME, DROP or CREATE TABLE moved its folder"
    for path in _mirror_folders(lake):
        if path not in expected and not begun and table_state(lake.spark, path) is not None:
            yield f"{path.removeprefix(f'{lake.paths.home}/')} did not exist at the cut: move its folder out of the lake"


def _by_name(row: Row) -> tuple[str, str]:
    return row["database"], row["table"]
