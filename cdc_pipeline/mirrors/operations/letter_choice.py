"""Which dead letters to release, and which messages to decode in their place."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.errors import LakeError, SourceError, TerminalError
from cdc_pipeline.mirrors.settings.table_patterns import matches_any
from cdc_pipeline.positions import POSITION, Position
from cdc_pipeline.sources.capture_files.reading import records
from cdc_pipeline.sources.intake import distinct_records, ranges_and_note
from cdc_pipeline.sources.source import SourceFile
from cdc_pipeline.spark.small_frames import small_frame

_RANGE = re.compile(r"(?P<topic>.+)/(?P<partition>\d+)@(?P<first>\d+)(?:[-–](?P<last>\d+))?", re.DOTALL)
_RANGES = "topic STRING, `partition` INT, `first` BIGINT, `last` BIGINT"
_REPLACEMENTS = "topic STRING, `partition` INT, `offset` BIGINT, replacement BINARY"
_SHOWN, _MOST_COUNTS = 5, 20
_RULES = ["rule", "database", "table"]


@dataclass(frozen=True)
class PositionRange:
    """A range of offsets of one partition."""

    topic: str
    partition: int
    first: int
    last: int
    """Included."""

    @staticmethod
    def parse(text: str) -> PositionRange:
        """Reads `topic/partition@offset` or `topic/partition@first-last`. Raises TerminalError if the text is neither."""
        match = _RANGE.fullmatch(text)
        if match is None:
            raise TerminalError(
                f"{text!r} is no position: topic/partition@offset or topic/partition@first-last is expected, for example "
                "shop/0@17 or shop/0@17-20"
            )
        first, partition = int(match["first"]), int(match["partition"])
        last = first if match["last"] is None else int(match["last"])
        if last < first:
            raise TerminalError(f"{text!r} is no position: {last} lies before {first}")
        if partition >= 1 << 31 or last >= 1 << 63:
            raise TerminalError(f"{text!r} is no position: a partition has at most 31 bits, an offset 63")
        return PositionRange(match["topic"], partition, first, last)


@dataclass(frozen=True)
class DeadLetterChoice:
    """The dead letters that match positions, rules and tables, as far as these are given, and those with a replacement.

    Raises TerminalError if nothing is chosen or a position is malformed.
    """

    positions: tuple[str, ...] = ()
    """As `PositionRange.parse` reads them."""
    rules: tuple[str, ...] = ()
    """Patterns on the rule's name."""
    tables: tuple[str, ...] = ()
    """Patterns on `database.table`."""
    replacements: Mapping[str, str] | None = None
    """The message to decode in place of the record's own, by position (one offset)."""
    replacement_file: str = ""
    """More replacements, as a file that `capture_files` can read."""

    def __post_init__(self) -> None:
        if not (self.positions or self.rules or self.tables or self.replacements or self.replacement_file):
            raise TerminalError(
                "nothing is chosen: positions, rules, tables, replacements or replacement_file is expected (rules: ['*'] "
                "chooses all dead letters)"
            )
        for text in self.positions:
            PositionRange.parse(text)
        for text in self.replacements or ():
            position = PositionRange.parse(text)
            if position.first != position.last:
                raise TerminalError(f"replacements: {text!r} names more than one record")

    def replacement_rows(self, spark: SparkSession) -> DataFrame:
        """The replacements: topic, partition, offset, replacement. Raises SourceError if the file cannot be used."""
        replacements = ((PositionRange.parse(text), message) for text, message in (self.replacements or {}).items())
        given = [(at.topic, at.partition, at.first, message.encode()) for at, message in replacements]
        frame = small_frame(spark, given, _REPLACEMENTS)
        if self.replacement_file:
            frame = frame.unionByName(_rows_of_file(spark, self.replacement_file))
        repeated = frame.groupBy(*POSITION).count().where("count > 1").drop("count").limit(_SHOWN).collect()
        if repeated:
            raise SourceError(f"replacements: {_shown(map(tuple, repeated))} has more than one replacement")
        return frame

    def choose(self, letters: DataFrame, replacements: DataFrame) -> DataFrame:
        """The chosen rows of `letters`, with a column `replacement` (null: decode the record's own message).

        Raises LakeError if a given position has no dead letter, or no dead letter is chosen.
        """
        named = small_frame(
            letters.sparkSession,
            [(one.topic, one.partition, one.first, one.last) for one in map(PositionRange.parse, self.positions)],
            _RANGES,
        )
        within = (
            (F.col("named.topic") == F.col("letters.topic"))
            & (F.col("named.partition") == F.col("letters.partition"))
            & F.col("letters.offset").between(F.col("named.first"), F.col("named.last"))
        )
        existing = letters.select(*POSITION).distinct()
        empty = named.alias("named").join(existing.alias("letters"), within, "left_anti").limit(_SHOWN).collect()
        unknown = replacements.join(existing, list(POSITION), "left_anti").select(*POSITION).limit(_SHOWN).collect()
        if empty or unknown:
            shown = _shown([*(tuple(row)[:3] for row in empty), *map(tuple, unknown)])
            raise LakeError(f"no dead letter at {shown}: nothing was released")
        wanted = letters.alias("letters")
        if self.positions:
            wanted = wanted.join(F.broadcast(named.alias("named")), within, "left_semi")
        kinds = F.broadcast(self._rules_and_tables(letters).alias("kinds"))
        # null-safe: some dead letters have no table
        same = functools.reduce(
            operator.and_, (F.col(f"letters.{name}").eqNullSafe(F.col(f"kinds.{name}")) for name in _RULES)
        )
        chosen = wanted.join(kinds, same, "left_semi").select(*letters.columns)
        if not (self.positions or self.rules or self.tables):
            chosen = chosen.where(F.lit(False))
        others = letters.join(F.broadcast(replacements.select(*POSITION)), list(POSITION), "left_semi")
        chosen = chosen.unionByName(others.select(*letters.columns)).distinct()
        chosen = chosen.join(F.broadcast(replacements), list(POSITION), "left")
        if chosen.isEmpty():
            raise LakeError(f"no dead letter is chosen; there are: {_counts(letters)}. Nothing was released")
        return chosen

    def _rules_and_tables(self, letters: DataFrame) -> DataFrame:
        """The chosen combinations of rule, database and table. There are few, whatever the number of dead letters."""
        rows = [tuple(row) for row in letters.select(*_RULES).distinct().collect()]
        matching = [
            row
            for row in rows
            if (not self.rules or matches_any(row[0], self.rules))
            and (not self.tables or matches_any(f"{row[1]}.{row[2]}", self.tables))
        ]
        return small_frame(letters.sparkSession, matching, "rule STRING, `database` STRING, `table` STRING")


def _rows_of_file(spark: SparkSession, path: str) -> DataFrame:
    file = Path(path)
    if not file.is_file():
        raise SourceError(f"replacement_file: there is no file {path!r}")
    if file.name.startswith(("_", ".")) or ":" in file.name:
        raise SourceError(f"replacement_file: Spark does not read a file named {file.name!r}: rename it")
    stat = file.stat()
    frame = records(spark, (SourceFile(str(file.absolute()), stat.st_size, stat.st_mtime_ns // 1_000_000),))
    ranges_and_note(frame, f"the file {path!r}")  # raises on two records at one position too
    empty = frame.where("value IS NULL").select(*POSITION).limit(_SHOWN).collect()
    if empty:
        raise SourceError(f"replacement_file: {path!r} has no payload at {_shown(map(tuple, empty))}")
    return distinct_records(frame).select(*POSITION, F.col("value").alias("replacement"))


def _shown(positions: Iterable[tuple[Any, ...]]) -> str:
    return ", ".join(str(Position(*position)) for position in positions)


def _counts(letters: DataFrame) -> str:
    rows = letters.groupBy(*_RULES).count().orderBy(*_RULES).limit(_MOST_COUNTS).collect()
    return "; ".join(f"{row['count']} of {row['rule']} in {row['database']}.{row['table']}" for row in rows) or "none"
