"""Releasing dead letters: the records are decoded again, as they are or as somebody repaired them, and all that follows
from them is made again.

A record that is released late lies below a TSO that the mirrors have applied: newer rows, deletes and DDL came after it. So
nothing is merged into the mirrors as they are. All is made again beside the lake, with the record at its own place in the
stream (`mirrors.operations.rebuild`), and only then looked at: a record that breaks a rule still is not released, and when
none is left the lake stays as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.contracts.canal_json import CLAIM_RULE
from cdc_pipeline.dialects.claims import CONTENT
from cdc_pipeline.dialects.decode import explained
from cdc_pipeline.dialects.releases import POSITION, RELEASES, kept_releases, with_replacements
from cdc_pipeline.dialects.unified import DEAD, DEAD_LETTER_COLUMNS
from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import Commit, append_once, table_state
from cdc_pipeline.mirrors.operations.begun_cut import settled
from cdc_pipeline.sources.compressed_values import may_be_packed, opened

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.operations.letter_choice import LetterChoice
    from cdc_pipeline.mirrors.operations.rebuild import Rebuilder, RebuildReport

_SAID = ("rule", "database", "table", "reason")
_MOST_SHOWN = 500
_RELEASE = ("run_id", "released_at", "note", "replacement", *DEAD_LETTER_COLUMNS)


@dataclass(frozen=True)
class Letter:
    """A dead letter: where it is, the rule that it breaks, and why."""

    topic: str
    partition: int
    offset: int
    rule: str
    table: str
    reason: str

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"


@dataclass(frozen=True)
class Letters:
    """How many there are, and the first of them."""

    count: int
    shown: tuple[Letter, ...]


@dataclass(frozen=True)
class ReleaseReport:
    """`released` are the letters that were taken in, each with the rule that it broke; `dead` are those that were chosen
    too and break a rule still; `rebuild` is what was put right, None where nothing could be released."""

    released: Letters
    dead: Letters
    rebuild: RebuildReport | None


@dataclass(frozen=True)
class Releaser:
    """Releases dead letters of one pipeline. `note` is the operator's word on why."""

    rebuilder: Rebuilder
    note: str = ""

    @property
    def _spark(self) -> SparkSession:
        return self.rebuilder.spark

    @property
    def _paths(self) -> LakePaths:
        return self.rebuilder.maker.paths

    @property
    def _run_id(self) -> str:
        return self.rebuilder.maker.run_id

    def released(self, choice: LetterChoice) -> ReleaseReport:
        """Raises LakeError where no dead letter is chosen, or a position that is named has none, and as
        `Rebuilder.rebuilt`. Call it as the only writer (`lake.lock`)."""
        kept = kept_releases(self._spark, self._paths)
        if kept is not None and not kept.where(F.col("run_id") == self._run_id).isEmpty():
            # this run has released already, and was stopped before all was put right
            rebuilt = self.rebuilder.rebuilt()
            mine = kept.where(F.col("run_id") == self._run_id)
            return ReleaseReport(_letters(mine), Letters(0, ()), rebuilt)
        settled(self.rebuilder.maker, abandon=True)  # a cut that was begun may set rows aside
        if table_state(self._spark, self._paths.table("dead_letters")) is None:
            raise LakeError("there are no dead letters yet", pipeline=self._paths.pipeline)
        letters = self._spark.read.format("delta").load(self._paths.table("dead_letters"))
        chosen = self._new_releases(choice.of(letters, choice.replaced(self._spark))).persist()
        try:
            return self._released(chosen, kept)
        finally:
            chosen.unpersist()

    def _new_releases(self, chosen: DataFrame) -> DataFrame:
        told = {
            "run_id": F.lit(self._run_id),
            "released_at": F.lit(datetime.now(timezone.utc)),
            "note": F.lit(self.note),
        }
        return chosen.withColumns(told).select(*_RELEASE)

    def _released(self, chosen: DataFrame, kept: DataFrame | None) -> ReleaseReport:
        dead = _told(self._dead_at_once(chosen))
        while not (
            left := chosen.join(dead.select(*POSITION), list(POSITION), "left_anti").select(*_RELEASE)
        ).isEmpty():
            with self.rebuilder.remade(left if kept is None else kept.unionByName(left)) as remade:
                letters = self._spark.read.format("delta").load(remade.paths.table("dead_letters"))
                still = _told(letters.join(left.select(*POSITION).distinct(), list(POSITION), "left_semi"))
                if not still.isEmpty():
                    self.rebuilder.maker.report(
                        f"{still.count()} of the records break a rule still: again without them"
                    )
                    dead = _told(dead.unionByName(still))
                    continue
                commit = Commit(f"cdc:{self._paths.pipeline}:releases:{self._run_id}", 1, {"run_id": self._run_id})
                append_once(left, self._paths.table(RELEASES), commit)
                return ReleaseReport(_letters(left), _letters(dead), self.rebuilder.put_right(remade))
        return ReleaseReport(Letters(0, ()), _letters(dead), None)

    def _dead_at_once(self, chosen: DataFrame) -> DataFrame:
        """The records that break a rule by themselves, told in seconds. Those that refer to a claim store may find there
        what was missing, and of values only the table's definition can tell: that is left to the rebuild."""
        raw = self._spark.read.format("delta").load(self._paths.table("raw_topic_snapshot"))
        places = F.broadcast(chosen.select("batch_id", *POSITION).distinct())
        batches = [row[0] for row in chosen.select("batch_id").distinct().collect()]
        records = raw.where(F.col("batch_id").isin(batches)).join(places, ["batch_id", *POSITION], "left_semi")
        records = with_replacements(self._spark, self._paths, records)
        repaired = chosen.where("replacement IS NOT NULL").select(*POSITION, "replacement").distinct()
        records = records.join(F.broadcast(repaired), list(POSITION), "left").withColumn(
            "value", F.coalesce("replacement", "value")
        )
        records = records.drop("replacement")
        if not records.where(may_be_packed(F.col("value"))).isEmpty():
            records = records.withColumn(CONTENT, opened(F.col("value")))
        # decoded first, filtered then: Spark would take the filter through the whole decoding, and plan without end
        found = explained(records, self.rebuilder.dialect).localCheckpoint()
        return found.where((F.col("kind") == DEAD) & (F.col("rule") != CLAIM_RULE))


def _told(letters: DataFrame) -> DataFrame:
    """What is said of these letters, kept in memory: the tables that it was read from are gone soon."""
    return letters.select(*POSITION, *_SAID).distinct().localCheckpoint()


def _letters(frame: DataFrame) -> Letters:
    told = frame.select(*POSITION, *_SAID).distinct()
    rows = told.orderBy(*POSITION, "rule").limit(_MOST_SHOWN).collect()
    shown = tuple(
        Letter(
            row["topic"],
            row["partition"],
            row["offset"],
            row["rule"],
            f"{row['database']}.{row['table']}" if row["table"] else "",
            row["reason"],
        )
        for row in rows
    )
    return Letters(told.count() if len(rows) == _MOST_SHOWN else len(rows), shown)
