"""Histories of the model, taken in by a pipeline whose runs are killed at random."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING
from unittest.mock import patch

from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts import cut_maker
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import published_entries
from cdc_pipeline.mirrors.cuts.stored_plan import is_begun
from cdc_pipeline.mirrors.merge.soft_deletes import live_rows
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy
from cdc_pipeline.mirrors.settings.selection import TableSelection
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.histories.combined import Combined, combined
from cdc_pipeline_tests.histories.encoders import MODES, has_watermarks
from cdc_pipeline_tests.histories.strategies import history_of_seed
from cdc_pipeline_tests.support.lakes.kills import Killer, ingested_with_kills
from cdc_pipeline_tests.support.lakes.truth import differences

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline_tests.histories.shapes import State


# The default: few messages with DDL of many kinds, some of it sent again.
SEED = int(os.environ.get("CDC_HISTORY_SEED", "668"))


TSO_MODES = tuple(mode for mode in MODES if has_watermarks(mode))


TIME_MODES = tuple(mode for mode in MODES if not has_watermarks(mode))


DOUBT = "do not show which"
"""Part of the gaps of changes whose order is unknown, and of equal changes that may be copies."""


class RandomKiller(Killer):
    """Kills a run now and then, at a commit or a move that it has not killed before."""

    def __init__(self, seed: int, share: float) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._share = share
        self.kills = 0

    def strike(self, *deed: object) -> None:
        if self._random.random() < self._share and deed not in self.seen:
            self.kills += 1
            super().strike(*deed)


class Told:
    """Histories in a lake."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        histories: Combined,
        killer: RandomKiller,
        columns: ColumnRules | None = None,
    ) -> None:
        self.spark, self.histories, self.killer, self.columns = spark, histories, killer, columns or ColumnRules()
        self.paths = LakePaths(str(folder / "lake"), "h")
        self.captures = folder / "captures"
        self.captures.mkdir()
        self.wrong: list[str] = []
        self.doubts: set[TableName] = set()
        self.compared_tables: set[TableName] = set()
        self._chance = random.Random(str(histories))
        self.finished_otherwise = 0

    def tell(self) -> None:
        for number, lines in enumerate(self.lines()):
            (self.captures / f"{number}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            self.take_in()
            truth = self.histories.truth_after(number)
            if truth is not None:
                self.wrong += [f"after file {number}: {line}" for line in self.compared(truth, self._mirrors(truth))]

    def lines(self) -> list[list[str]]:
        """What is told, file by file."""
        return self.histories.files()

    def take_in(self) -> None:
        """What has been told, by as many runs as that needs."""
        ingested_with_kills(self.spark, self.paths, self.captures, self.killer, self.columns, self._finished_otherwise)

    def _finished_otherwise(self) -> None:
        """What a killed run has begun, now and then under other settings: they must not change it."""
        if not is_begun(self.spark, self.paths, published_cut(self.spark, self.paths)) or self._chance.random() < 0.3:
            return
        others = CutMaker(
            self.spark,
            self.paths,
            "otherwise",
            self._chance.choice(("UTC", "Asia/Shanghai")),
            2,
            lambda line: None,
            {f"{database}.{table}": ("id",) for database, table in self.histories.final_truth()},
            DdlPolicy(self._chance.choice(("apply", "keep", "hold"))),
            TableSelection(exclude=(self._chance.choice(("*_a.*", "*.t1", "nothing.*")),)),
            self.columns,
        )
        # what has come since is for the run that follows
        with patch.object(cut_maker, "next_window", lambda *_, **__: None):
            others.advance()
        self.finished_otherwise += 1

    def _mirrors(self, truth: State) -> dict[TableName, DataFrame]:
        """The mirrors that there are, as far as upstream has them, but for those of which the truth says nothing."""
        entries = published_entries(published_cut(self.spark, self.paths), self.paths)
        told = {database for database, _ in truth}
        return {
            entry.name: live_rows(self.spark.read.format("delta").load(entry.path), keeps_deleted=entry.keeps_deleted)
            for entry in entries
            if self.histories.watermarks or entry.name.database in told
        }

    def doubtful(self) -> set[TableName]:
        """The tables that say of themselves what the stream does not tell (`DOUBT`)."""
        entries = published_entries(published_cut(self.spark, self.paths), self.paths)
        found = {entry.name for entry in entries if any(DOUBT in gap for gap in entry.gaps)}
        self.doubts |= found
        return found

    def compared(self, truth: State, found: Mapping[TableName, DataFrame]) -> list[str]:
        """What is wrong with the tables, in words: each has the columns and rows of that time, and there are no others."""
        names = {TableName(*name): content for name, content in truth.items()}
        doubtful = self.doubtful()
        wrong = [f"{name} is missing" for name in sorted(names.keys() - found)]
        wrong += [f"{name} does not exist any more" for name in sorted(set(found) - names.keys())]
        self.compared_tables |= names.keys() & found.keys()
        for name in sorted((names.keys() & found) - doubtful):
            columns, rows = names[name].expected()
            wrong += [f"{name}: {line}" for line in differences(found[name], columns, rows)]
        return wrong


def histories_of(modes: tuple[str, ...], first_seed: int, count: int, transactions: int, *, ddl: bool) -> Combined:
    """As many histories, the modes in turn."""
    return combined(
        [
            history_of_seed(seed, transactions=transactions, mode=modes[number % len(modes)], complete=True, ddl=ddl)
            for number, seed in enumerate(range(first_seed, first_seed + count))
        ]
    )
