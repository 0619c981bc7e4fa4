"""Which dead letters are to be released, and what is to be decoded in their place."""

from __future__ import annotations

import functools
import operator
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from cdc_pipeline.dialects.releases import POSITION
from cdc_pipeline.errors import LakeError, SourceError
from cdc_pipeline.mirrors.settings.table_patterns import matches_any
from cdc_pipeline.sources.capture_files.reading import records
from cdc_pipeline.sources.intake import distinct_records, offset_ranges, require_readable
from cdc_pipeline.sources.source import CaptureFile
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

_PLACE = re.compile(r"(?P<topic>.+)/(?P<partition>\d+)@(?P<first>\d+)(?:[-–](?P<last>\d+))?", re.DOTALL)
_PLACES = "topic STRING, `partition` INT, `first` BIGINT, `last` BIGINT"
_REPLACEMENTS = "topic STRING, `partition` INT, `offset` BIGINT, replacement BINARY"
_SHOWN, _MOST_COUNTS = 5, 20
_RULES = ["rule", "database", "table"]


@dataclass(frozen=True)
class Stretch:
    """Offsets of one partition, both ends included."""

    topic: str
    partition: int
    first: int
    last: int

    @staticmethod
    def of(text: str) -> Stretch:
        """`topic/partition@offset` or `topic/partition@first-last`. Raises ValueError."""
        found = _PLACE.fullmatch(text)
        if found is None:
            raise ValueError(
                f"{text!r} is no position: topic/partition@offset or topic/partition@first-last is expected, such as "
                "shop/0@17 or shop/0@17-20"
            )
        first, partition = int(found["first"]), int(found["partition"])
        last = first if found["last"] is None else int(found["last"])
        if last < first:
            raise ValueError(f"{text!r} is no position: {last} lies before {first}")
        if partition >= 1 << 31 or last >= 1 << 63:
            raise ValueError(f"{text!r} is no position: Kafka's partitions have 31 bits and its offsets 63")
        return Stretch(found["topic"], partition, first, last)


@dataclass(frozen=True)
class LetterChoice:
    """Dead letters by position, rule and table; each that is given narrows the choice. `rules` and `tables` are patterns,
    the latter on `database.table`. `replacements` are messages by position (`Stretch.of`, one offset), and choose theirs
    too; so does each record of `replacement_file`, a file as `capture_files` reads it.

    Raises ValueError where nothing is chosen or a position is none.
    """

    positions: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    replacements: Mapping[str, str] | None = None
    replacement_file: str = ""

    def __post_init__(self) -> None:
        if not (self.positions or self.rules or self.tables or self.replacements or self.replacement_file):
            raise ValueError(
                "nothing is chosen: positions, rules, tables, replacements or replacement_file is expected (rules: ['*'] "
                "for all dead letters)"
            )
        for text in self.positions:
            Stretch.of(text)
        for text in self.replacements or ():
            stretch = Stretch.of(text)
            if stretch.first != stretch.last:
                raise ValueError(f"replacements: {text!r} names more than one record")

    def replaced(self, spark: SparkSession) -> DataFrame:
        """The replacements: topic, partition, offset, replacement. Raises SourceError where the file is no such file."""
        given = [
            (stretch.topic, stretch.partition, stretch.first, text.encode())
            for stretch, text in ((Stretch.of(place), text) for place, text in (self.replacements or {}).items())
        ]
        frame = small_frame(spark, given, _REPLACEMENTS)
        if self.replacement_file:
            frame = frame.unionByName(_of_file(spark, self.replacement_file))
        many = frame.groupBy(*POSITION).count().where("count > 1").drop("count").limit(_SHOWN).collect()
        if many:
            raise SourceError(f"replacements: {_shown(map(tuple, many))} is there twice, in the file and beside it")
        return frame

    def of(self, letters: DataFrame, replaced: DataFrame) -> DataFrame:
        """The rows of `letters` that are chosen, with `replacement`. Raises LakeError where a position that is named has
        no dead letter, or none is chosen at all."""
        named = small_frame(
            letters.sparkSession,
            [(one.topic, one.partition, one.first, one.last) for one in map(Stretch.of, self.positions)],
            _PLACES,
        )
        within = (
            (F.col("named.topic") == F.col("letters.topic"))
            & (F.col("named.partition") == F.col("letters.partition"))
            & F.col("letters.offset").between(F.col("named.first"), F.col("named.last"))
        )
        places = letters.select(*POSITION).distinct()
        empty = named.alias("named").join(places.alias("letters"), within, "left_anti").limit(_SHOWN).collect()
        unknown = replaced.join(places, list(POSITION), "left_anti").select(*POSITION).limit(_SHOWN).collect()
        if empty or unknown:
            shown = _shown([*(tuple(row)[:3] for row in empty), *map(tuple, unknown)])
            raise LakeError(f"there is no dead letter at {shown}: nothing was released")
        wanted = letters.alias("letters")
        if self.positions:
            wanted = wanted.join(F.broadcast(named.alias("named")), within, "left_semi")
        kinds = F.broadcast(self._rules_and_tables(letters).alias("kinds"))
        # most letters name a table, some do not
        same = functools.reduce(
            operator.and_, (F.col(f"letters.{name}").eqNullSafe(F.col(f"kinds.{name}")) for name in _RULES)
        )
        chosen = wanted.join(kinds, same, "left_semi").select(*letters.columns)
        if not (self.positions or self.rules or self.tables):
            chosen = chosen.where(F.lit(False))
        others = letters.join(F.broadcast(replaced.select(*POSITION)), list(POSITION), "left_semi")
        found = chosen.unionByName(others.select(*letters.columns)).distinct()
        found = found.join(F.broadcast(replaced), list(POSITION), "left")
        if found.isEmpty():
            raise LakeError(f"no dead letter is chosen; there are: {_counts(letters)}. Nothing was released")
        return found

    def _rules_and_tables(self, letters: DataFrame) -> DataFrame:
        """The rules with their tables that are chosen. There are few of them, whatever the number of letters."""
        found = [tuple(row) for row in letters.select(*_RULES).distinct().collect()]
        kept = [
            row
            for row in found
            if (not self.rules or matches_any(row[0], self.rules))
            and (not self.tables or matches_any(f"{row[1]}.{row[2]}", self.tables))
        ]
        return small_frame(letters.sparkSession, kept, "rule STRING, `database` STRING, `table` STRING")


def _of_file(spark: SparkSession, path: str) -> DataFrame:
    place = Path(path)
    if not place.is_file():
        raise SourceError(f"replacement_file: there is no file {path!r}")
    if place.name.startswith(("_", ".")) or ":" in place.name:
        raise SourceError(
            f"replacement_file: {place.name!r} is a name that Spark does not read: give the file another one"
        )
    stat = place.stat()
    frame = records(spark, (CaptureFile(str(place.resolve()), stat.st_size, stat.st_mtime_ns // 1_000_000),))
    require_readable(frame, f"the file {path!r}")
    offset_ranges(frame)  # refuses two records at one position
    empty = frame.where("value IS NULL").select(*POSITION).limit(_SHOWN).collect()
    if empty:
        raise SourceError(f"replacement_file: {path!r} has no payload at {_shown(map(tuple, empty))}")
    return distinct_records(frame).select(*POSITION, F.col("value").alias("replacement"))


def _shown(places: Iterable[tuple[Any, ...]]) -> str:
    return ", ".join(f"{topic}/{partition}@{offset}" for topic, partition, offset in places)


def _counts(letters: DataFrame) -> str:
    rows = letters.groupBy(*_RULES).count().orderBy(*_RULES).limit(_MOST_COUNTS).collect()
    return "; ".join(f"{row['count']} of {row['rule']} in {row['database']}.{row['table']}" for row in rows) or "none"
