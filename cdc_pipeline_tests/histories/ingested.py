"""Histories of the model, ingested by a pipeline whose runs are killed at random."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.tables.ddl_history import NOT_APPLIED
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts import cut_maker
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import published_entries
from cdc_pipeline.mirrors.cuts.stored_plan import is_begun
from cdc_pipeline.mirrors.merge.soft_deletes import live_rows
from cdc_pipeline.mirrors.model.ddl_events import ddl_event
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy
from cdc_pipeline.mirrors.settings.selection import TableSelection
from cdc_pipeline.mysql.model.change_names import folded
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.histories.combined import Combined, combined
from cdc_pipeline_tests.histories.shapes import State
from cdc_pipeline_tests.histories.strategies import history_of_seed
from cdc_pipeline_tests.support.lakes.kills import Killer, ingested_with_kills
from cdc_pipeline_tests.support.lakes.truth import differences
from cdc_pipeline_tests.support.lakes.ways import MERGED, REWRITTEN, written_by

# The default seed has few messages, with DDL of many kinds, some of it resent.
SEED = int(os.environ.get("CDC_HISTORY_SEED", "668"))


DOUBT, LATE = "do not show which", "arrived after the mirror"
"""A phrase in the gaps of changes with unknown order, and of equal changes that may be copies."""


class RandomKiller(Killer):
    """Kills a run now and then, at a commit or move where it has not killed before."""

    def __init__(self, seed: int, share: float) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._share = share
        self.kills = 0

    def strike(self, *operation: object) -> None:
        if self._random.random() < self._share and operation not in self.seen:
            self.kills += 1
            super().strike(*operation)


class IngestedHistories:
    """Histories and the lake that ingests them."""

    doubtful_gaps: tuple[str, ...] = (DOUBT, LATE)
    """Phrases in the gaps of tables that are not compared."""
    begins_later = False
    """Whether rebuilds begin with a kept cut: what belongs before it stays late."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        histories: Combined,
        killer: RandomKiller,
        columns: ColumnRules | None = None,
        root: str | None = None,
    ) -> None:
        """`root`: the lake; None: one in `folder`."""
        self.spark, self.histories, self.killer, self.columns = spark, histories, killer, columns or ColumnRules()
        # in one of four lakes mirrors do not move, as on object stores
        scheme = random.Random(f"{histories} lake").choice(("", "", "", "file:"))
        self.paths = LakePaths(root or f"{scheme}{folder / 'lake'}", "h")
        self.captures = folder / "captures"
        self.captures.mkdir()
        self.wrong: list[str] = []
        self.doubts: set[TableName] = set()
        self.compared_tables: set[TableName] = set()
        self._chance = random.Random(str(histories))
        self._ways = random.Random(str(histories))
        self.finished_under_other_settings = 0

    def ingest_files(self) -> None:
        for number, lines in enumerate(self.lines()):
            (self.captures / f"{number}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            self.ingest_file()
            truth = self.truth_after(number)
            if truth is not None:
                self.wrong += [f"after file {number}: {line}" for line in self.compared(truth, self._mirrors(truth))]

    def lines(self) -> list[list[str]]:
        """The lines of each file."""
        return self.histories.files()

    def truth_after(self, number: int) -> State | None:
        """The tables whose state after this file is compared. None if none is."""
        return self.histories.truth_after(number)

    def ingest_file(self) -> None:
        """Ingests the files so far, in as many runs as the kills require. Small mirrors are written in either way."""
        with written_by(self._ways.choice((REWRITTEN, REWRITTEN, MERGED))):
            ingested_with_kills(self.spark, self.paths, self.captures, self.killer, self.columns, self.after_kill)

    def after_kill(self) -> None:
        """Called before a killed run is repeated."""
        self._finish_under_other_settings()

    def _finish_under_other_settings(self) -> None:
        """Resumes a killed run's cut now and then under other settings, which must not change the cut."""
        if (
            not is_begun(Lake(self.spark, self.paths), published_cut(Lake(self.spark, self.paths)))
            or self._chance.random() < 0.3
        ):
            return
        maker = CutMaker(
            Lake(self.spark, self.paths),
            "other_settings",
            self._chance.choice(("UTC", "Asia/Shanghai")),
            2,
            lambda line: None,
            {f"{database}.{table}": ("id",) for database, table in self.histories.final_truth()},
            DdlPolicy(self._chance.choice(("apply", "keep", "hold"))),
            TableSelection(exclude=(self._chance.choice(("*_a.*", "*.t1", "nothing.*")),)),
            self.columns,
        )
        # leaves newer records to the next run
        with patch.object(cut_maker, "next_window", lambda *_, **__: None):
            maker.advance()
        self.finished_under_other_settings += 1

    def _mirrors(self, truth: State) -> dict[TableName, DataFrame]:
        """The existing mirrors, without those whose truth is unknown."""
        entries = published_entries(published_cut(Lake(self.spark, self.paths)), self.paths)
        databases = {database for database, _ in truth}
        names = [self.histories.name_in_truth(entry.name) for entry in entries]
        return {
            # two mirrors of one table keep their names, so that one of them is surplus
            (name if names.count(name) == 1 else entry.name): live_rows(
                self.spark.read.format("delta").load(entry.path), keeps_deleted=entry.keeps_deleted
            )
            for name, entry in zip(names, entries, strict=True)
            if self.histories.watermarks or name.database in databases
        }

    def doubtful(self) -> set[TableName]:
        """The tables with a gap for which the stream does not show the truth, or for what arrived late."""
        entries = published_entries(published_cut(Lake(self.spark, self.paths)), self.paths)
        found = {
            self.histories.name_in_truth(entry.name)
            for entry in entries
            if any(words in gap for gap in entry.gaps for words in self.doubtful_gaps)
        }
        found |= set(map(self.histories.name_in_truth, self._lacking_late_ddl()))
        self.doubts |= found
        return found

    def _named_by_late_ddl(self) -> set[TableName]:
        """The tables of statements that arrived late: without a mirror a table has no gap, but `ddl_history` has the
        statement as `not applied yet`, and `ddl_applied` fails."""
        rows = Lake(self.spark, self.paths).read("ddl_history").where(F.col("effect").contains(LATE)).collect()
        return {self.histories.name_in_truth(name) for event in map(ddl_event, rows) for name in event.names()}

    def _lacking_late_ddl(self) -> set[TableName]:
        """The tables of statements that are `not applied yet` because one of their tables lacks a late statement, as
        EXCHANGE PARTITION with a table whose CREATE was late."""
        rows = Lake(self.spark, self.paths).read("ddl_history").where(F.col("status") == NOT_APPLIED).collect()
        late = set(map(folded, self._named_by_late_ddl()))
        events = sorted((ddl_event(row) for row in rows if LATE not in row.effect), key=lambda event: event.at)
        lacking: set[TableName] = set()
        for event in events:
            if late & set(map(folded, event.names())):
                lacking |= set(event.names())
                late |= set(map(folded, event.names()))
        return lacking

    def changed_by_rebuild(self) -> set[str]:
        """The mirrors that a rebuild may change, as it names them."""
        return self.late() | {f"mirror/{name}" for name in self._lacking_late_ddl()}

    def late(self) -> set[str]:
        """The mirrors with something that arrived late, as a rebuild names them."""
        entries = published_entries(published_cut(Lake(self.spark, self.paths)), self.paths)
        return {f"mirror/{entry.name}" for entry in entries if any(LATE in gap for gap in entry.gaps)}

    def differences_at_end(self) -> list[str]:
        """The differences from upstream after all files."""
        truth = self.truth_after(len(self.histories.slices) - 1)
        return [] if truth is None else self.compared(truth, self._mirrors(truth))

    def rebuild_differences(self) -> list[str]:
        """Tables that a rebuild changes, though nothing in them was late, or that differ from upstream after it."""
        expected = self.changed_by_rebuild()
        maker = CutMaker(Lake(self.spark, self.paths), "rebuild", "UTC", 2, lambda line: None, columns=self.columns)
        report = Rebuilder(maker).rebuild()
        wrong = [f"rebuilt: {table}" for table in report.tables if not table.equal and str(table.table) not in expected]
        assert self.begins_later or not self.late()
        return wrong + [f"rebuilt: {line}" for line in self.differences_at_end()]

    def compared(self, truth: State, found: Mapping[TableName, DataFrame]) -> list[str]:
        """The differences as messages: missing and surplus tables, columns and rows."""
        names = {TableName(*name): content for name, content in truth.items()}
        # a statement may spell its tables in another case
        doubtful, late = self.doubtful(), set(map(folded, self._named_by_late_ddl()))
        moved = {name for name in {*names, *found} if folded(name) in late}
        wrong = [f"{name} is missing" for name in sorted(names.keys() - found - moved)]
        wrong += [f"{name} does not exist any more" for name in sorted(set(found) - names.keys() - moved)]
        self.compared_tables |= names.keys() & found.keys()
        for name in sorted((names.keys() & found) - doubtful):
            columns, rows = names[name].expected()
            wrong += [f"{name}: {line}" for line in differences(found[name], columns, rows)]
        return wrong + [f"{name} lacks no rows of changes" for name in sorted(self._lacking_rows() - doubtful - moved)]

    def _lacking_rows(self) -> set[TableName]:
        """The tables without a key that say of changes that they did not have their rows."""
        entries = published_entries(published_cut(Lake(self.spark, self.paths)), self.paths)
        lacking = (entry.name for entry in entries if any("the mirror does not have" in gap for gap in entry.gaps))
        return set(map(self.histories.name_in_truth, lacking))


def histories_of(modes: tuple[str, ...], first_seed: int, count: int, transactions: int, *, ddl: bool) -> Combined:
    """Histories of successive seeds. The modes alternate."""
    return combined(
        [
            history_of_seed(seed, transactions=transactions, mode=modes[number % len(modes)], complete=True, ddl=ddl)
            for number, seed in enumerate(range(first_seed, first_seed + count))
        ]
    )
