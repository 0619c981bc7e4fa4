"""Tables that are renamed back and forth within one cut, killed at each commit and move. Without Spark, on a lake of dicts.

The planner plans statements with rows between them. After a kill, the next run walks the same steps again. In the end each
mirror is in the same folder as without kills, and has each commit once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any
from unittest.mock import patch

import pytest

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import Commit, TableState
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.execution import mirror_folders, step_runner
from cdc_pipeline.mirrors.execution.step_runner import StepRunner
from cdc_pipeline.mirrors.merge.apply_rows import RowCounts
from cdc_pipeline.mirrors.merge.step_context import StepContext
from cdc_pipeline.mirrors.model.state import DROPPED_BY, MirrorState
from cdc_pipeline.mirrors.model.step_commits import CutCommits
from cdc_pipeline.mirrors.model.steps import ApplyRows, RenameMirror
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import CutPlan, Planner
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.plans.by_hand import ddl_event, mirror_state, row_group

PATHS = LakePaths("/lake", "p")
REMOTE = LakePaths("s3a://lake", "p")


class Killed(BaseException):
    """Not an Exception: nothing may catch it."""


@dataclass
class Folder:
    """A Delta table: its properties and its commits."""

    properties: dict[str, str]
    commits: list[int] = field(default_factory=list)


class FakeLake:
    """`kill_at`: the numbers of the commits and moves before which a run is killed."""

    def __init__(self, states: list[MirrorState], kill_at: tuple[int, ...] = (), paths: LakePaths = PATHS) -> None:
        self.paths = paths
        self.folders = {state.folder(paths): Folder(state.properties()) for state in states}
        self.kill_at, self.actions = set(kill_at), 0
        self.removed: list[str] = []

    def act(self) -> None:
        self.actions += 1
        if self.actions - 1 in self.kill_at:
            raise Killed

    def table_state(self, _: object, path: str) -> TableState | None:
        folder = self.folders.get(path)
        return None if folder is None else TableState(0, None, folder.properties)  # type: ignore[arg-type]

    def is_in(self, _: object, path: str, commit: Commit) -> bool:
        return (
            path in self.folders
            and bool(self.folders[path].commits)
            and self.folders[path].commits[-1] >= commit.version
        )

    def commit(self, _: object, path: str, commit: Commit, **said: Any) -> None:
        if not self.is_in(None, path, commit):
            self.act()
            self.folders[path].commits.append(commit.version)
            self.folders[path].properties |= said.get("properties", {})

    def create(self, _: object, path: str, commit: Commit, **said: Any) -> None:
        assert path not in self.folders
        self.act()
        self.folders[path] = Folder(dict(said["properties"]), [commit.version])

    def move(self, source: str, target: str) -> None:
        assert self.paths.is_local
        self.act()
        if target in self.folders:
            raise LakeError(f"cannot move {source} to {target}: the target exists")
        self.folders[target] = self.folders.pop(source)

    def remove(self, _: object, path: str) -> None:
        self.removed.append(path)
        del self.folders[path]

    def let_in(self, context: StepContext, step: ApplyRows, row_set: object) -> RowCounts:
        self.commit(None, context.path, context.commits(1))
        return RowCounts()

    @property
    def contents(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Folder → (the id of its mirror, its commits)."""
        return {
            path: (folder.properties["cdc.mirror_id"], tuple(folder.commits)) for path, folder in self.folders.items()
        }

    @property
    def present(self) -> dict[str, str]:
        """Name → the id of its mirror, without the dropped ones."""
        if self.paths.is_local:
            mirrors = [folder for path, folder in self.folders.items() if path.startswith("/lake/p/mirror/")]
        else:
            mirrors = [folder for folder in self.folders.values() if not folder.properties.get(DROPPED_BY)]
        found = [(folder.properties["cdc.table"], folder.properties["cdc.mirror_id"]) for folder in mirrors]
        assert len(dict(found)) == len(found)
        return dict(found)

    def run(self, plan: CutPlan) -> None:
        """Runs the plan until a run completes."""
        again = staticmethod(lambda *_: RowCounts())
        settings = {"time_zone": "UTC", "salt": ""}
        rows: Any = type("Rows", (), {"apply": staticmethod(self.let_in), "recount": again, **settings})
        row_sets: Any = dict.fromkeys(range(len(plan.steps)))
        writer = StepRunner(Lake(None, self.paths), plan.steps, row_sets, CutCommits("p", 7, {}), rows, 1)  # type: ignore[arg-type]
        with (
            patch.object(mirror_folders, "table_state", self.table_state),
            patch.object(mirror_folders, "is_committed", self.is_in),
            patch.object(mirror_folders, "commit_metadata", self.commit),
            patch.object(mirror_folders, "create_table", self.create),
            patch.object(mirror_folders, "remove_folder", self.remove),
            patch.object(mirror_folders, "move_folder", self.move),
            patch.object(mirror_folders, "forget_cached_log", lambda *_: None),
            patch.object(step_runner, "commit_metadata", self.commit),
            patch.object(step_runner, "map_in_threads", lambda _, work, chains, __: [work(chain) for chain in chains]),
        ):
            for _ in range(len(self.kill_at) + 1):
                try:
                    done = writer.run(lambda line: None)
                except Killed:
                    continue
                for failure in done.failures:
                    raise failure.error
                return
        raise AssertionError("no run completed")


def planned(statements: str, names: str = "a b") -> tuple[list[MirrorState], CutPlan]:
    """The plan of the statements, separated by semicolons, with rows of each table between two statements that name it."""
    states = [mirror_state(name) for name in names.split()]
    before = {state.name: state for state in states}
    events = [ddl_event(place, sql.strip()) for place, sql in enumerate(statements.split(";"), 1)]
    existing, passed = set(before), Counter[TableName]()
    groups = [row_group(name, 0) for name in existing]
    for event in events:
        passed.update(event.names())
        for change in event.changes:
            names = change.names()
            existing = (existing - set(names.removed)) | {*names.added, *names.recovered}
        groups += [row_group(name, passed[name]) for name in event.names() if name in existing]
    draft = PlanDraft(groups, before.get, frozenset(before), 7, CutSettings("UTC"))
    return states, Planner(draft).plan(events)


PLANS = {
    "there and back, and a new one": "RENAME TABLE a TO c; RENAME TABLE c TO a; CREATE TABLE c (id INT PRIMARY KEY)",
    "a swap": "RENAME TABLE a TO x, b TO a, x TO b",
    "two swaps of one pair": "RENAME TABLE a TO x, b TO a, x TO b; RENAME TABLE a TO x, b TO a, x TO b",
    "gh-ost": "CREATE TABLE _a_gho (id INT PRIMARY KEY); RENAME TABLE a TO _a_del, _a_gho TO a",
    "gh-ost and its revert": "CREATE TABLE _a_gho (id INT PRIMARY KEY); RENAME TABLE a TO _a_del, _a_gho TO a; "
    "RENAME TABLE a TO _a_gho, _a_del TO a; DROP TABLE _a_gho; CREATE TABLE _a_del (id INT PRIMARY KEY)",
    "dropped and back under another name": "DROP TABLE a; FLASHBACK TABLE a TO c; CREATE TABLE a (id INT PRIMARY KEY)",
    "dropped, back, and back to its name": "DROP TABLE a; FLASHBACK TABLE a TO c; RENAME TABLE c TO a; "
    "CREATE TABLE c (id INT PRIMARY KEY)",
    "dropped and recovered, twice": "DROP TABLE a; RECOVER TABLE a; DROP TABLE a; RECOVER TABLE a; RENAME TABLE a TO c",
    "truncated and back, beside the emptied table": "TRUNCATE TABLE a; FLASHBACK TABLE a TO c; "
    "RENAME TABLE c TO d; DROP TABLE a",
    "a name of several in turn": "RENAME TABLE a TO c, b TO a; DROP TABLE a; RENAME TABLE c TO b; RENAME TABLE b TO a; "
    "FLASHBACK TABLE a TO d",
    "dropped and made again, twice": "DROP TABLE a; CREATE TABLE a (id INT PRIMARY KEY); DROP TABLE a; "
    "CREATE TABLE a (id INT PRIMARY KEY); RENAME TABLE a TO c, b TO a",
    "a ring of three": "RENAME TABLE a TO x, b TO a, c TO b, x TO c; RENAME TABLE a TO x, b TO a, c TO b, x TO c",
}
NAMES = {"a ring of three": "a b c"}


def _kill_points(actions: int) -> Iterator[tuple[int, ...]]:
    yield from ((place,) for place in range(actions))
    # two kills: also the resuming run is killed
    yield from combinations(range(actions + 4), 2)


@pytest.mark.parametrize("name", PLANS)
def test_killed_at_any_commit_or_move(name: str) -> None:
    states, plan = planned(PLANS[name], NAMES.get(name, "a b"))
    assert sum(isinstance(step, RenameMirror) for step in plan.steps) or "dropped" in name or "truncated" in name
    present = []
    for paths in (PATHS, REMOTE):
        straight = FakeLake(states, paths=paths)
        straight.run(plan)
        present.append(straight.present)
        for kill_at in _kill_points(straight.actions):
            lake = FakeLake(states, kill_at, paths)
            lake.run(plan)
            assert (lake.contents, lake.present) == (straight.contents, straight.present), kill_at
    assert present[0] == present[1]


def test_a_missing_mirror_fails_its_step() -> None:
    """A step on a mirror whose folder was removed is not skipped silently."""
    states, plan = planned("ALTER TABLE a ADD KEY k (id)", "a")
    lake = FakeLake(states)
    lake.folders.clear()
    with pytest.raises(LakeError, match=r"the mirror db\.a is not at .*/db/a, where the plan of the cut expects it"):
        lake.run(plan)
    states, plan = planned("RENAME TABLE a TO b", "a")
    lake = FakeLake(states)
    lake.folders.clear()
    with pytest.raises(LakeError, match="is not at"):
        lake.run(plan)


def test_what_an_abandoned_cut_has_left_is_replaced() -> None:
    """In a remote lake, where a later cut creates the same mirror in the same folder."""
    states, plan = planned("CREATE TABLE c (id INT PRIMARY KEY); RENAME TABLE c TO d", "a")
    straight, later = FakeLake(states, paths=REMOTE), FakeLake(states, paths=REMOTE)
    straight.run(plan)
    (created,) = straight.folders.keys() - later.folders.keys()
    later.folders[created] = Folder(dict(straight.folders[created].properties), [6])
    later.run(plan)
    assert later.removed == [created]
    assert later.contents == straight.contents
