"""The rows of one ApplyRows step on their way into the mirror: typed, looked at, masked, and let in by one commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, trait_of
from cdc_pipeline.errors import LakeError
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.lake.delta import Commit, append_once, is_in, session_for, stored_bytes
from cdc_pipeline.mirrors.changes.dead_letters import value_letters
from cdc_pipeline.mirrors.merge.absent_columns import absent_defaults
from cdc_pipeline.mirrors.merge.computed_values import DerivedValues
from cdc_pipeline.mirrors.merge.masked_values import folded_images, masked_cells, with_masks
from cdc_pipeline.mirrors.merge.merge_rows import (
    Merged,
    TargetLayout,
    append_rows,
    merge_keyed,
    merge_keyless,
    rows_of_unknown,
    typed_rows,
    with_computed,
)
from cdc_pipeline.mirrors.merge.row_findings import row_findings
from cdc_pipeline.mirrors.model.masks import NULL
from cdc_pipeline.spark.few_rows import are_few
from cdc_pipeline.spark.null_on_error import fit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.merge.net_changes import RowSet
    from cdc_pipeline.mirrors.model.step_commits import StepCommits
    from cdc_pipeline.mirrors.model.steps import ApplyRows

SMALL_MIRROR = 4 * 2**20
"""Bytes up to which a merge writes files of a mirror anew: to mark rows in them takes one pass more and leaves one file more
each time, which costs more than to write some MB."""
TINY_MIRROR = 2**20
"""Bytes up to which a mirror has few rows, as `few_rows` has it: some ten thousand narrow ones."""
_LETTERS, _ROWS = 0, 1


@dataclass
class RowCounts:
    """Rows of the mirror that changed, bad values that were kept out (`rejected` counts changes, not halves of them), and
    dates that became NULL."""

    merged: Merged = field(default_factory=Merged)
    identities: int = 0
    bad_rows: int = 0
    rejected: int = 0
    zero_dates: int = 0


@dataclass(frozen=True)
class RowSteps:
    """`net_view` is the global temporary view of `net_changes.net_changes`; `salt` that of masked values. `found` are the
    row changes that there are for each step, where another run has planned them: some of the steps may be in already. None
    else."""

    spark: SparkSession
    paths: LakePaths
    time_zone: str
    net_view: str
    found: Mapping[int, int] | None
    salt: str = field(default="", repr=False)

    def let_in(
        self,
        path: str,
        step: ApplyRows,
        row_set: RowSet,
        commits: StepCommits,
        note_gaps: Callable[[Sequence[Gap], Commit], None],
    ) -> RowCounts:
        """Lets the step's rows into the mirror at the path; `note_gaps` notes what is found of them first. Raises LakeError
        where they are not as many as when they were planned: another version may part them otherwise, and some may be in."""
        commit, result = commits(_ROWS), RowCounts()
        if self.found is not None:
            if is_in(self.spark, path, commit):
                return self.found_again(step, row_set)
            if self.found[row_set.step] != step.changes:
                raise LakeError(
                    f"{self.found[row_set.step]} row changes are there for {step.state.name} where {step.changes} were "
                    "planned: this version parts them otherwise than the one that began the cut",
                    pipeline=self.paths.pipeline,
                )
        size = stored_bytes(self.spark, path)
        few = are_few(step.changes) and size <= TINY_MIRROR
        session = session_for(self.spark, commit, whole_files=size <= SMALL_MIRROR, few=few)
        state, key, keyless = step.state, row_set.columns, row_set.keyless
        derived = DerivedValues(fit(session), state) if state.derived_shown else None
        layout = TargetLayout(state.schema, state.trace, derived, state.kept, state.keeps_deleted)
        rows, absent, gaps = self._rows(session, step, row_set)
        if step.lacking and (unknown := rows_of_unknown(session, path, rows, state.schema, key, soft=layout.soft)):
            words = f"{unknown} row(s) came without some columns, and were not known: {', '.join(step.lacking)}"
            gaps = (*gaps, Gap(GapKind.UNKNOWN_ROWS, words))
        there = self._set_bad_rows_aside(rows, step, row_set, commits, result, gaps, note_gaps)
        good = rows.where("size(bad) = 0") if result.bad_rows else rows
        if step.into_empty:
            append_rows(path, good, layout, commit, keyless=keyless)
            result.merged = Merged(inserted=there)
        elif keyless:
            good = folded_images(good, len(state.schema.columns)) if NULL in dict(state.masks).values() else good
            result.merged = merge_keyless(session, path, good, layout)
        else:
            computed = step.computed if absent else ()
            # in a partition the order is the binlog's, and what comes again is told and left out
            in_order = all(trait_of(dialect, Trait.IN_LOG_ORDER) for dialect, _ in step.wires)
            result.merged = merge_keyed(session, path, good, layout, key, absent, computed, in_order=in_order)
        return result

    def found_again(self, step: ApplyRows, row_set: RowSet) -> RowCounts:
        """What was found of the rows of a step that an earlier run has let in: the cut counts it, whichever run did it."""
        found = row_findings(self._rows(self.spark, step, row_set)[0], keyless=row_set.keyless)
        return RowCounts(Merged(), found.identities, found.bad, found.rejected, found.zero_dates)

    def _rows(
        self, session: SparkSession, step: ApplyRows, row_set: RowSet
    ) -> tuple[DataFrame, dict[str, object], tuple[Gap, ...]]:
        """The rows as the mirror's types, masked; what absent columns are in them; and the gaps that these leave."""
        net = session.table(f"global_temp.{self.net_view}").where(F.col("step") == row_set.step)
        schema, key, keyless = step.state.schema, row_set.columns, row_set.keyless
        found, gaps = absent_defaults(schema, step.lacking, self.time_zone, step.wires)
        absent = {**dict.fromkeys(step.untold), **found}
        masks = dict(step.state.masks)
        rows = typed_rows(net, schema, key, self.time_zone, step.wires, keyless=keyless, absent=absent, masked=masks)
        rows = with_computed(rows, schema, step.computed, self.time_zone)
        rows = with_masks(rows, masked_cells(step.state), self.salt)
        return rows, dict(absent), gaps

    def _set_bad_rows_aside(
        self,
        rows: DataFrame,
        step: ApplyRows,
        row_set: RowSet,
        commits: StepCommits,
        result: RowCounts,
        known_gaps: tuple[Gap, ...],
        note_gaps: Callable[[Sequence[Gap], Commit], None],
    ) -> int:
        """Rows with a value that its type cannot hold become dead letters, and the mirror is marked as having a gap.

        So it is for the other findings, and for `known_gaps`. Returns how many rows the others are where the mirror has
        none before.
        """
        found = row_findings(rows, keyless=row_set.keyless)
        result.identities, result.bad_rows, result.zero_dates = found.identities, found.bad, found.zero_dates
        result.rejected = found.rejected
        gaps = [*known_gaps, *found.gaps]
        letters = commits(_LETTERS)
        if result.bad_rows:
            raw = self.spark.read.format("delta").load(self.paths.table("raw_topic_snapshot"))
            place = Commit(
                f"cdc:{self.paths.pipeline}:bad_rows:{step.state.mirror_id}", letters.version, dict(letters.note)
            )
            append_once(value_letters(rows, step.state, raw), self.paths.table("dead_letters"), place)
            words = f"{result.bad_rows} row(s) with values that their types cannot hold: see dead_letters"
            gaps.append(Gap(GapKind.BAD_VALUES, words))
        note_gaps(gaps, letters)
        return found.there
