"""Lakes whose tables somebody took back to an earlier version with Delta's RESTORE.

RESTORE takes rows and columns back, but not the pairs of (writer, version) by which commits are made once
(`lake/delta.py`): what was committed after that version counts as being in, and would be passed over in silence. Where
the tables stand together at one cut, `lake_taken_back` takes the pairs back too, and the lake is as it was then.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable

from cdc_pipeline.dialects.claims import CLAIMS
from cdc_pipeline.dialects.decoded_tables import OTHERS
from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import progress, set_writers, table_state
from cdc_pipeline.lake.delta_log import newest_operation, same_files, snapshot_at, snapshot_of, writers
from cdc_pipeline.lake.paths import OWN_TABLES, subfolders
from cdc_pipeline.mirrors.changes.progress import PublishedCut, published_cut
from cdc_pipeline.mirrors.model.step_commits import cut_of_writers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import Row, SparkSession

    from cdc_pipeline.lake.paths import LakePaths

_CUTS = "consistent_cuts"
_RAW, _BATCHES = "raw_topic_snapshot", "batches"
_DECODED = (CLAIMS, "change_log", *OTHERS)
_RESTORE = "RESTORE"
_TAKEN_BACK = "cdc.taken_back_to"
"""Among the parameters of the commit that makes a restored table's writers those of the version that it was restored to."""
_UPKEEP = re.compile("OPTIMIZE|VACUUM|REORG")
"""Operations that change no row."""


def cut_to_go_on_from(spark: SparkSession, paths: LakePaths) -> PublishedCut:
    """The newest published cut. Raises LakeError where a later one was committed and taken back."""
    # first: a run beside may publish
    committed = progress(spark, paths.table(_CUTS), paths.writer(_CUTS)) or 0
    published = published_cut(spark, paths)
    if published.cut_id < committed:
        raise LakeError(
            f"consistent_cuts ends with cut {published.cut_id}, though cut {committed} was committed: it was taken back, as "
            "by RESTORE, and changed since. Take it back once more (RESTORE) and start a run, or put a copy of the "
            "pipeline's folder in its place; see docs/operations.md",
            pipeline=paths.pipeline,
        )
    return published


def lake_taken_back(spark: SparkSession, paths: LakePaths, report: Callable[[str], None]) -> bool:
    """Where the last thing that happened to `consistent_cuts` is a RESTORE: every table's writers are again what they were
    at the version that it was taken back to, each in a commit of its own, `consistent_cuts` last.

    Raises LakeError, before anything is changed, where the tables do not stand together at that cut: each that does not,
    and what to do with it.
    """
    if table_state(spark, paths.table(_CUTS)) is None or newest_operation(spark, paths.table(_CUTS)) != _RESTORE:
        return False
    published = published_cut(spark, paths)
    since = _newest_moment(spark, paths.table(_CUTS))
    tables = list(_tables(spark, paths, since))
    begun = cuts_of(tables, paths, "cut_plans") == published.cut_id + 1
    problems = [
        *(
            words
            for table in tables
            if (words := table.problem(paths, published.cut_id, _needed_until(table, tables), begun=begun))
        ),
        *_misplaced(spark, paths, published, begun=begun),
    ]
    if problems:
        raise LakeError(
            f"consistent_cuts was taken back to cut {published.cut_id}, and other tables do not stand there. Nothing was "
            f"changed. {'; '.join(problems)}. See docs/operations.md",
            pipeline=paths.pipeline,
        )
    for table in sorted(tables, key=lambda table: table.name == _CUTS):
        if table.stale:
            set_writers(spark, table.path, table.stale, table.note, {_TAKEN_BACK: str(table.content)})
            report(f"{table.name} was taken back to version {table.content}: what came after it counts no more")
    report(f"the lake was taken back to cut {published.cut_id}: the pipeline goes on from there")
    return True


@dataclass(frozen=True)
class _Table:
    """A table as its log tells of it. `content` is the version whose rows it has: an earlier one where it was taken back.
    `then` are the writers of that version, `now` those that count. `lost` are the moments of the commits that were taken
    back, `moments` those of the others, both by version."""

    name: str
    path: str
    content: int
    then: dict[str, int]
    now: dict[str, int]
    lost: dict[int, datetime]
    moments: dict[int, datetime]
    note: str

    @property
    def moment(self) -> datetime:
        """Of the newest commit that counts."""
        return max(self.moments.values())

    @property
    def stale(self) -> dict[str, int]:
        """The writers that have to be taken back, with what they had committed then."""
        return {
            writer: self.then.get(writer, 0) for writer, number in self.now.items() if number != self.then.get(writer)
        }

    def cut_of(self, paths: LakePaths) -> int:
        """The newest cut of which the table has something."""
        own = (self.then.get(f"cdc:{paths.pipeline}:{name}", 0) for name in ("ddl_results", "cut_plans", _CUTS))
        return max(*own, cut_of_writers(paths.pipeline, self.then))

    def problem(self, paths: LakePaths, cut_id: int, needed: datetime, *, begun: bool) -> str | None:
        """Why the table does not stand at the cut; None where it does. Its commits up to the moment `needed` are needed."""
        best = max(version for version, at in {**self.moments, **self.lost}.items() if version == 0 or at <= needed)
        if any(at <= needed for at in self.lost.values()):
            return f"{self.name} was taken back to version {self.content}, too far for the others: RESTORE it to {best}"
        if (cut := self.cut_of(paths)) > cut_id + begun:
            return f"{self.name} has what cut {cut} did: RESTORE it to version {best}"
        return None


def _needed_until(table: _Table, tables: list[_Table]) -> datetime:
    """What was made of a table's commits must not be there without them: all follows from the raw snapshot, what is decoded
    is needed up to the newest batch that is told to be so, and everything up to the cut."""
    made = {_RAW: (*_DECODED, _BATCHES, _CUTS)}.get(
        table.name, (_BATCHES, _CUTS) if table.name in _DECODED else (_CUTS,)
    )
    return max(other.moment for other in tables if other.name in made)


def cuts_of(tables: list[_Table], paths: LakePaths, name: str) -> int:
    """The newest cut that the table of that name has something of; 0 where there is no such table."""
    return next((table.cut_of(paths) for table in tables if table.name == name), 0)


def _tables(spark: SparkSession, paths: LakePaths, since: datetime) -> Iterator[_Table]:
    places = {name: paths.table(name) for name in OWN_TABLES}
    places |= {path.removeprefix(f"{paths.home}/"): path for path in _mirror_folders(spark, paths)}
    for name, path in places.items():
        if table_state(spark, path) is not None:
            yield _table(spark, paths, name, path, since)


def _newest_moment(spark: SparkSession, path: str) -> datetime:
    return _utc(DeltaTable.forPath(spark, path).history(1).select("timestamp").collect()[0][0])


def _table(spark: SparkSession, paths: LakePaths, name: str, path: str, since: datetime) -> _Table:
    """`since` is when `consistent_cuts` was taken back: what stopped after that, in the middle, is gone on with."""
    columns = ("version", "timestamp", "operation", "operationParameters", "userMetadata")
    history = DeltaTable.forPath(spark, path).history().select(*columns).collect()
    commits = {row["version"]: row for row in history if not _UPKEEP.match(row["operation"])}
    last, snapshot = max(commits), snapshot_of(spark, path)
    now = then = writers(spark, snapshot)
    if _is_of_ours(commits[last]) and _utc(commits[last]["timestamp"]) >= since:
        last = max(version for version in commits if version < last)
    content = last
    if commits[last]["operation"] == _RESTORE:
        content = _restored_version(paths, name, commits[last], history)
        source = snapshot_at(spark, path, content)
        if not same_files(source, snapshot):
            raise LakeError(
                f"{name} was taken back ({commits[last]['operationParameters']}) to another state than version {content}, "
                "or changed since: RESTORE it by its version",
                pipeline=paths.pipeline,
            )
        then = writers(spark, source)
    moments = {version: _utc(row["timestamp"]) for version, row in commits.items()}
    return _Table(
        name,
        path,
        content,
        then,
        now,
        {version: at for version, at in moments.items() if content < version < last},
        {version: at for version, at in moments.items() if version <= content},
        _note_at(commits, content),
    )


def _is_of_ours(commit: Row) -> bool:
    return _TAKEN_BACK in (commit["operationParameters"].get("properties") or "")


def _restored_version(paths: LakePaths, name: str, restore: Row, history: list[Row]) -> int:
    told = restore["operationParameters"]
    if told.get("version") is not None:
        return int(told["version"])
    moment = datetime.fromisoformat(told["timestamp"]).replace(tzinfo=timezone.utc)
    before = [
        row["version"] for row in history if row["version"] < restore["version"] and _utc(row["timestamp"]) <= moment
    ]
    if not before:
        raise LakeError(f"{name} was taken back to {moment}, before its first commit", pipeline=paths.pipeline)
    return int(max(before))


def _utc(local: datetime) -> datetime:
    """A timestamp as PySpark gives it, in the time zone of this process."""
    return local.astimezone(timezone.utc)


def _note_at(commits: dict[int, Row], content: int) -> str:
    """The newest note of ours up to that version: the positions of a source stand in the newest note of all."""
    notes = (commits[version]["userMetadata"] for version in sorted(commits, reverse=True) if version <= content)
    return next((note for note in notes if note and "run_id" in _plain(note)), "{}")


def _plain(note: str) -> dict[str, Any]:
    try:
        found = json.loads(note)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _mirror_folders(spark: SparkSession, paths: LakePaths) -> list[str]:
    return [path for database in subfolders(spark, f"{paths.home}/mirror") for path in subfolders(spark, database)]


def _misplaced(spark: SparkSession, paths: LakePaths, published: PublishedCut, *, begun: bool) -> Iterator[str]:
    """Mirrors of the cut that are not where it had them, and folders of mirrors that it does not know."""
    expected = {}
    for name, row in zip(sorted(published.names), sorted(published.mirrors, key=_by_name), strict=True):
        path = paths.mirror(name)
        expected[path] = row
        state = table_state(spark, path)
        if state is None or state.properties.get("cdc.mirror_id") != row["mirror_id"]:
            yield f"the mirror {name} is not where the cut had it: a later RENAME, DROP or CREATE TABLE moved its folder"
    for path in _mirror_folders(spark, paths):
        if path not in expected and not begun and table_state(spark, path) is not None:
            yield f"{path.removeprefix(f'{paths.home}/')} came after the cut: move its folder out of the lake"


def _by_name(row: Row) -> tuple[str, str]:
    return row["database"], row["table"]
