"""Histories with an export, ingested by a pipeline that adopts it, and whose runs are killed at random."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import published_entries
from cdc_pipeline.mirrors.cuts.stored_plan import is_begun
from cdc_pipeline.mirrors.model.state import UNSEEN_START
from cdc_pipeline.mirrors.operations import adoption
from cdc_pipeline.mirrors.operations.loading import Loading
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.snapshots.position import ExportTimes
from cdc_pipeline_tests.histories.choices import Seeded
from cdc_pipeline_tests.histories.combined import Combined
from cdc_pipeline_tests.histories.exported import write_export
from cdc_pipeline_tests.histories.history import History
from cdc_pipeline_tests.histories.ingested import DOUBT, LATE, IngestedHistories, RandomKiller
from cdc_pipeline_tests.histories.shapes import State
from cdc_pipeline_tests.histories.snapshots import CLOCKS_MS, Snapshot
from cdc_pipeline_tests.histories.upstream import END_TSO
from cdc_pipeline_tests.support.lakes.kills import ingested_with_kills
from cdc_pipeline_tests.support.lakes.pipelines import ingest

_PART_BYTES = 200
"""Files of the model are loaded in parts, as large ones are."""
_TWICE = "may count twice"
"""A phrase in the gap of a keyless table that changed while it was exported."""


class SnapshotHistories(IngestedHistories):
    """Adopts the export after the file that the snapshot names, or after a kill within the ingest of that file."""

    doubtful_gaps = (DOUBT, LATE, _TWICE)

    def __init__(
        self, spark: SparkSession, folder: Path, histories: Combined, snapshot: Snapshot, killer: RandomKiller
    ) -> None:
        # exports need a lake that `lake.store` writes
        super().__init__(spark, folder, histories, killer, root=str(folder / "lake"))
        self.snapshot = snapshot
        self.export = folder / "export"
        write_export(self.export, snapshot.tables, snapshot.moment, Seeded(snapshot.tso))
        self.is_adopted = self.was_passed = False
        """`was_passed`: the mirrors had passed the export when it was adopted."""
        self.adopted_in_begun_cuts = 0
        self._file = -1

    def ingest_file(self) -> None:
        self._file += 1
        super().ingest_file()
        if self._file == self.snapshot.loaded:
            self._repeat(self._load)
        if self._file == self.snapshot.adopted:
            self._repeat(self._adopt)
            assert self.is_adopted

    def after_kill(self) -> None:
        """Now and then adopts the export before the killed run of the ingest is repeated."""
        lake = Lake(self.spark, self.paths)
        is_time = self._file == self.snapshot.adopted and lake.exists("ddl_history")
        if is_time and self._chance.random() < 0.4:
            self.adopted_in_begun_cuts += is_begun(lake, published_cut(lake))
            self._adopt()
        super().after_kill()

    def truth_after(self, number: int) -> State | None:
        """A stream that lacks changes shows the truth from the export on. So does an export that the mirrors show before the
        stream has reached it."""
        found: State = {}
        for history, start in zip(self.histories.histories, self.snapshot.starts, strict=True):
            reached = self._reached(history, number)
            is_past = self.is_adopted and reached is not None and reached >= self.snapshot.tso
            has_all = start is None and (self.histories.watermarks or not self.is_adopted)
            if reached is not None and (is_past or has_all):
                found |= history.upstream.state_at(reached)
        return found or None

    def _reached(self, history: History, number: int) -> int | None:
        """The TSO whose state the mirrors of the history have after this file. None if there is none."""
        if self.histories.watermarks:
            resolved = self.histories.resolved_after(number)
            return None if resolved is None else resolved - 1
        number = min(number, len(history.slices) - 1)
        return END_TSO if number == len(history.slices) - 1 else history.slices[number].complete_tso

    def compared(self, truth: State, found: Mapping[TableName, DataFrame]) -> list[str]:
        unsure = {TableName(*name) for name in self.snapshot.unsure} if self.is_adopted else set()
        known = {name: content for name, content in truth.items() if TableName(*name) not in unsure}
        compared = {_prefix(database) for database, _ in truth}
        mirrors = {name: rows for name, rows in found.items() if _prefix(name.database) in compared}
        return super().compared(known, {name: rows for name, rows in mirrors.items() if name not in unsure})

    def changed_by_rebuild(self) -> set[str]:
        """Also those that got changes after the adoption which the export had already. Their values are compared."""
        entries = published_entries(published_cut(Lake(self.spark, self.paths)), self.paths)
        twice = {f"mirror/{entry.name}" for entry in entries if any(_TWICE in gap for gap in entry.gaps)}
        ahead = {f"mirror/{entry.name}" for entry in entries if self.snapshot.is_ahead}
        unsure = {f"mirror/{TableName(*name)}" for name in self.snapshot.unsure}
        return super().changed_by_rebuild() | twice | ahead | unsure

    def unexpected_gaps(self) -> list[str]:
        """Mirrors with a gap because their beginning is unknown."""
        entries = published_entries(published_cut(Lake(self.spark, self.paths)), self.paths)
        unseen = [(entry.name, gap) for entry in entries for gap in entry.gaps if str(UNSEEN_START) in gap]
        return [f"{name}: {gap}" for name, gap in unseen if (name.database, name.table) not in self.snapshot.unsure]

    def _load(self) -> str:
        moment = self.snapshot.moment
        loading = Loading(self.paths, "load", lambda line: None, processes=1, part_bytes=_PART_BYTES)
        times = ExportTimes(moment.started, moment.finished)
        return loading.load("dumpling", str(self.export), lambda name: True, times)

    def _adopt(self) -> None:
        lake, snapshot = Lake(self.spark, self.paths), self.snapshot
        maker = CutMaker(lake, "adopt", "UTC", 2, lambda line: None)
        start = None if snapshot.shows_start and self.histories.watermarks else snapshot.latest_start
        with patch.object(adoption, "CLOCKS_MS", CLOCKS_MS):
            adopted = adoption.adopt(Rebuilder(maker), self._load(), changefeed_start=start)
        assert len(adopted.tables) == len(snapshot.tables)
        self.is_adopted, self.was_passed = True, adopted.rebuilt is not None

    def _repeat(self, run: Callable[[], object]) -> None:
        """Repeats the run until it is not killed. After a kill, an ingest may run before."""

        def other_run() -> None:
            if self._chance.random() < 0.3:
                ingest(self.spark, self.paths, self.captures)

        ingested_with_kills(
            self.spark, self.paths, self.captures, self.killer, after_kill=other_run, run=lambda *_, **__: run()
        )


def _prefix(database: str) -> str:
    """Of the names of one history."""
    return database.rsplit("_", 1)[0]
