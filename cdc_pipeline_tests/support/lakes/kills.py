"""Stops runs right before a commit or folder move, where a kill -9 could stop them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession

from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.execution import mirror_folders
from cdc_pipeline.mirrors.execution.mirror_folders import move_folder
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline_tests.support.lakes.pipelines import ingest

# Few stories, because each stop repeats the run: rows with and without a key, renames, drops, column changes.
SHORT = (
    "equal_rows_without_a_key_are_counted",
    "two_tables_swap_their_names_over_a_third",
    "a_dropped_table_made_again_with_another_shape",
)


class Killed(BaseException):
    """A simulated kill. Not an Exception, so that no handler catches it."""


class Killer:
    """Raises Killed before a commit or move (a deed) that is attempted for the first time: each one, or each `every`-th."""

    def __init__(self, every: int = 1) -> None:
        self.every = every
        self.seen: set[tuple[object, ...]] = set()

    def strike(self, *deed: object) -> None:
        if deed not in self.seen:
            self.seen.add(deed)
            if len(self.seen) % self.every == 0:
                raise Killed(*deed)

    def note_json(self, commit: Commit) -> str:
        # the version of this commit is the table's: it grows with each raw batch that a killed run leaves
        is_repeated = commit.app_id.endswith(":lake_format")
        self.strike(commit.app_id, 0 if is_repeated else commit.version)
        return "{}" if "raw" not in commit.app_id and "truncated" not in commit.note else commit_note(commit)

    def move_folder(self, source: str, target: str) -> None:
        self.strike(source, target)
        move_folder(source, target)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within the context, calls `strike` before each commit and folder move."""
        with (
            patch.object(Commit, "note_json", property(self.note_json)),
            patch.object(mirror_folders, "move_folder", self.move_folder),
        ):
            yield


commit_note: Callable[[Commit], str] = Commit.note_json.fget  # type: ignore[attr-defined]


def ingested_with_kills(
    spark: SparkSession,
    paths: LakePaths,
    captures: Path,
    killer: Killer,
    columns: ColumnRules | None = None,
    after_kill: Callable[[], None] = lambda: None,
    run: Callable[..., object] = ingest,
    **settings: Any,
) -> int:
    """Repeats a run until it completes, and returns the number of killed runs.

    `after_kill`: called before each repetition; may be killed too. `run`: what is repeated; `settings`: its further
    arguments.
    """
    for killed in range(500):
        try:
            with killer.watching():
                if killed:
                    after_kill()
                run(spark, paths, captures, columns=columns, **settings)
        except Killed:
            continue
        return killed
    raise AssertionError("no run completed")
