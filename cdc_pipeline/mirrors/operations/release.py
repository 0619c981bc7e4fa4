"""Releases dead letters: decodes the records again, as they are or with a replacement, and rebuilds what depends on them.

A released record lies below a TSO that the mirrors have applied: newer rows, deletes and DDL followed. So it is never
merged into the current mirrors. `Rebuilder` rebuilds all tables in a scratch lake, with the record at its own position in
the stream. A record that still breaks a rule is not released. If no record remains, the lake stays the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.contracts.canal_json import CLAIM_RULE
from cdc_pipeline.dialects.contents import RELEASES, read_releases, with_decompressed, with_replacements
from cdc_pipeline.dialects.decode import decode_with_reasons
from cdc_pipeline.dialects.senders import unnumbered_topics, with_senders
from cdc_pipeline.dialects.topic_tables import with_tables
from cdc_pipeline.dialects.unified import DEAD, DEAD_LETTER_COLUMNS
from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.writes import append_once
from cdc_pipeline.mirrors.operations.letter_choice import DeadLetterChoice
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder, RebuildReport
from cdc_pipeline.mirrors.operations.retention import rebuild_start
from cdc_pipeline.positions import POSITION, Position

_DETAILS = ("rule", "database", "table", "reason")
_MOST_SHOWN = 500
_RELEASE = ("run_id", "released_at", "note", "replacement", *DEAD_LETTER_COLUMNS)


@dataclass(frozen=True)
class DeadLetter:
    """A dead letter."""

    position: Position
    rule: str
    table: str
    """As `database.table`; empty if unknown."""
    reason: str


@dataclass(frozen=True)
class DeadLetters:
    """Dead letters of a report."""

    count: int
    shown: tuple[DeadLetter, ...]
    """The first _MOST_SHOWN of them."""


@dataclass(frozen=True)
class ReleaseReport:
    """The result of a release."""

    released: DeadLetters
    dead: DeadLetters
    """Chosen dead letters that still break a rule, so that they are not released."""
    rebuild: RebuildReport | None
    """None if nothing was released."""


@dataclass(frozen=True)
class Releaser:
    """Releases dead letters of one pipeline."""

    rebuilder: Rebuilder
    note: str = ""
    """The operator's reason, kept in `dead_letter_releases`."""

    @property
    def _lake(self) -> Lake:
        return self.rebuilder.maker.lake

    @property
    def _run_id(self) -> str:
        return self.rebuilder.maker.run_id

    def release(self, choice: DeadLetterChoice) -> ReleaseReport:
        """Releases the chosen dead letters. Call it as the only writer (`lake.lock`).

        Raises LakeError if no dead letter is chosen or a chosen position has none, and as `Rebuilder.rebuild`.
        """
        kept = read_releases(self._lake)
        stored = None if kept is None else kept.where(F.col("run_id") == self._run_id)
        if stored is not None and not stored.isEmpty():
            # this run died after it had stored the releases
            rebuilt = self.rebuilder.rebuild()
            return ReleaseReport(_letters(stored), DeadLetters(0, ()), rebuilt)
        self.rebuilder.finish_begun_cut(abandon=True)  # it may write dead letters
        if not self._lake.exists("dead_letters"):
            raise self._lake.error("there are no dead letters yet")
        letters = self._lake.read("dead_letters")
        try:
            found = choice.choose(letters, choice.replacement_rows(self._lake.spark))
        except LakeError as error:
            if kept is None:
                raise
            newest = kept.orderBy(F.col("released_at").desc()).select("run_id").first()
            assert newest is not None
            raise LakeError(
                f"{error}. The newest release is that of run {newest['run_id']}: if it failed, run "
                f"{self._lake.paths.pipeline}_rebuild, which completes it"
            ) from error
        self._require_records(found)
        own = {
            "run_id": F.lit(self._run_id),
            "released_at": F.lit(datetime.now(timezone.utc)),
            "note": F.lit(self.note),
        }
        chosen = found.withColumns(own).select(*_RELEASE).persist()
        try:
            return self._release(chosen, kept)
        finally:
            chosen.unpersist()

    def _require_records(self, chosen: DataFrame) -> None:
        """Raises LakeError if the record of a dead letter was removed (`mirrors.operations.retention`)."""
        start = rebuild_start(self._lake)
        if start is None:
            return
        row = chosen.where(F.col("batch_id") <= start.cut.last_batch).select(*POSITION).first()
        if row is not None:
            raise self._lake.error(
                f"{Position(*row)} cannot be released: rebuilds begin with a kept cut behind its batch (keep_raw_days). "
                "Change the row upstream, so that it is sent again"
            )

    def _release(self, chosen: DataFrame, kept: DataFrame | None) -> ReleaseReport:
        """Releases the records of `chosen` that no longer break a rule; `kept` are earlier releases."""
        dead = _details(self._still_dead(chosen, kept))
        while not (remaining := chosen.join(dead, list(POSITION), "left_anti").select(*_RELEASE)).isEmpty():
            with self.rebuilder.rebuild_in_scratch(releases=_with_earlier(remaining, kept)) as rebuilt:
                letters = rebuilt.lake.read("dead_letters")
                still = _details(letters.join(remaining, list(POSITION), "left_semi"))
                if not still.isEmpty():
                    self.rebuilder.maker.report(
                        f"{still.count()} of the records still break a rule: rebuilding without them"
                    )
                    dead = _details(dead.unionByName(still))
                    continue
                commit = Commit(f"cdc:{self._lake.paths.pipeline}:releases:{self._run_id}", 1, {"run_id": self._run_id})
                append_once(remaining, self._lake.paths.table(RELEASES), commit)
                return ReleaseReport(_letters(remaining), _letters(dead), self.rebuilder.replace_differing(rebuilt))
        return ReleaseReport(DeadLetters(0, ()), _letters(dead), None)

    def _still_dead(self, chosen: DataFrame, kept: DataFrame | None) -> DataFrame:
        """The records that still break a rule on their own, without the cost of a rebuild.

        Only the rebuild can check claims, which may exist in the claim store by now, and values, which need the table's
        definition.
        """
        raw = self._lake.read("raw_topic_snapshot")
        batches = [row[0] for row in chosen.select("batch_id").distinct().collect()]
        records = raw.where(F.col("batch_id").isin(batches))
        records = records.join(F.broadcast(chosen), ["batch_id", *POSITION], "left_semi")
        records = with_replacements(records, _with_earlier(chosen, kept))
        records = with_tables(with_senders(records, unnumbered_topics(self._lake)), self.rebuilder.decoding.tables)
        # the checkpoint keeps Spark from pushing the filter through the decoding, which takes its planner minutes
        decoded = decode_with_reasons(with_decompressed(records), self.rebuilder.decoding.dialect).localCheckpoint()
        return decoded.where((F.col("kind") == DEAD) & (F.col("rule") != CLAIM_RULE))


def _with_earlier(releases: DataFrame, kept: DataFrame | None) -> DataFrame:
    return releases if kept is None else kept.unionByName(releases)


def _details(letters: DataFrame) -> DataFrame:
    """Position, rule, table and reason of each dead letter, cached because the scratch lake is removed soon."""
    return letters.select(*POSITION, *_DETAILS).distinct().localCheckpoint()


def _letters(frame: DataFrame) -> DeadLetters:
    letters = frame.select(*POSITION, *_DETAILS).distinct()
    rows = letters.orderBy(*POSITION, "rule").limit(_MOST_SHOWN).collect()
    shown = tuple(
        DeadLetter(
            Position(row["topic"], row["partition"], row["offset"]),
            row["rule"],
            f"{row['database']}.{row['table']}" if row["table"] else "",
            row["reason"],
        )
        for row in rows
    )
    return DeadLetters(letters.count() if len(rows) == _MOST_SHOWN else len(rows), shown)
