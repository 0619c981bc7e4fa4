"""Runs an `ApplyRows` step: types, checks and masks its rows, rejects bad ones, and merges the others in one commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.errors import LakeError
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.lake.delta import Commit, append_once, commit_session, is_committed, stored_bytes
from cdc_pipeline.mirrors.changes.dead_letters import value_dead_letters
from cdc_pipeline.mirrors.merge.absent_columns import absent_defaults
from cdc_pipeline.mirrors.merge.computed_values import ComputedValues
from cdc_pipeline.mirrors.merge.masked_values import folded_images, masked_cells, with_masks
from cdc_pipeline.mirrors.merge.merge_rows import (
    Merged,
    append_rows,
    count_unknown_rows,
    merge_keyed,
    merge_keyless,
)
from cdc_pipeline.mirrors.merge.row_findings import row_findings
from cdc_pipeline.mirrors.merge.typed_rows import RowEncoding, Target, typed_rows, with_generated
from cdc_pipeline.mirrors.model.masks import NULL
from cdc_pipeline.spark.few_rows import is_small
from cdc_pipeline.spark.null_on_error import allow_null_on_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.mirrors.merge.row_entries import RowSet
    from cdc_pipeline.mirrors.merge.row_findings import RowFindings
    from cdc_pipeline.mirrors.model.step_commits import StepCommits
    from cdc_pipeline.mirrors.model.steps import ApplyRows

SMALL_MIRROR = 4 * 2**20
"""Mirror size in bytes up to which a merge rewrites files instead of writing deletion vectors.

A deletion vector costs one more pass and one more file per merge, which is more expensive than rewriting a few MB.
"""
TINY_MIRROR = 2**20
"""Mirror size in bytes up to which a merge is a small query (`few_rows`): about ten thousand narrow rows."""
_DEAD_LETTERS, _ROWS = 0, 1
"""Parts of the step's commits."""


@dataclass
class RowCounts:
    """The result of an `ApplyRows` step."""

    merged: Merged = field(default_factory=Merged)
    bad_rows: int = 0
    """Net changes with a value that its type cannot hold; they become dead letters."""
    rejected: int = 0
    """Row changes among the bad rows. An UPDATE of the key is one change, although it has two net changes."""
    zero_dates: int = 0
    """Dates that became NULL because no calendar has them."""


@dataclass(frozen=True)
class RowMerger:
    """Runs the `ApplyRows` steps of a cut."""

    lake: Lake
    time_zone: str
    """The zone in which the encoder prints TIMESTAMP."""
    net_view: str
    """Global temporary view of `net_changes`."""
    changes_found: Mapping[int, int] | None
    """Row changes of each step, if the cut was planned by an earlier run, which may have run some steps. Else None."""
    salt: str = field(default="", repr=False)
    """`mask_salt`."""

    def apply(
        self,
        path: str,
        step: ApplyRows,
        row_set: RowSet,
        commits: StepCommits,
        note_gaps: Callable[[Sequence[Gap], Commit], None],
    ) -> RowCounts:
        """Merges the step's rows into the mirror at `path`. Calls `note_gaps` before it commits the rows.

        Raises LakeError if a resumed cut has another number of row changes than planned.
        """
        commit = commits(_ROWS)
        if self.changes_found is not None:
            if is_committed(self.lake.spark, path, commit):
                return self.recount(step, row_set)
            if self.changes_found[row_set.step] != step.changes:
                raise LakeError(
                    f"{step.state.name}: the resumed cut has {self.changes_found[row_set.step]} row changes, but "
                    f"{step.changes} were planned. Finish the cut with the version that started it: "
                    "this one groups changes differently",
                    pipeline=self.lake.paths.pipeline,
                )
        size = stored_bytes(self.lake.spark, path)
        few = is_small(step.changes) and size <= TINY_MIRROR
        session = commit_session(self.lake.spark, commit, whole_files=size <= SMALL_MIRROR, small=few)
        state = step.state
        computed = ComputedValues(allow_null_on_error(session), state) if state.computed_shown else None
        target = Target(state, row_set.columns, row_set.keyless, computed)
        rows, encoding, gaps = self._rows(session, step, row_set, target)
        named = {gap.column for gap in state.gaps if gap.kind is GapKind.PARTIAL_IMAGES}
        absent = [name for name in step.absent if name not in named]
        if absent and (unknown := count_unknown_rows(session, path, rows, target, absent)):
            message = (
                f"{unknown} row(s) were updated without some columns and did not exist in the mirror under their key, so "
                f"these columns are NULL: {', '.join(absent)}"
            )
            gaps = (*gaps, Gap(GapKind.UNKNOWN_ROWS, message))
        found = row_findings(rows, keyless=target.keyless)
        result = _counts(found)
        note_gaps(self._reject_bad_rows(rows, step, commits, found, gaps), commits(_DEAD_LETTERS))
        good = rows.where("size(bad) = 0") if found.bad else rows
        # without deletes the rows of a keyless table are appended without reading the mirror
        if step.into_empty or (target.keyless and not found.deletes):
            append_rows(path, good, target, commit)
            result.merged = Merged(inserted=found.existing)
        elif target.keyless:
            good = folded_images(good, len(state.schema.columns)) if NULL in dict(state.masks).values() else good
            result.merged = merge_keyless(session, path, good, target)
        else:
            result.merged = merge_keyed(session, path, good, target, encoding)
        return result

    def recount(self, step: ApplyRows, row_set: RowSet) -> RowCounts:
        """Counts the rows of a step that an earlier run of the cut has merged; `merged` is not known any more."""
        target = Target(step.state, row_set.columns, row_set.keyless)
        return _counts(row_findings(self._rows(self.lake.spark, step, row_set, target)[0], keyless=target.keyless))

    def _rows(
        self, session: SparkSession, step: ApplyRows, row_set: RowSet, target: Target
    ) -> tuple[DataFrame, RowEncoding, tuple[Gap, ...]]:
        """The typed, masked rows of the step, their encoding, and the gaps of absent columns without a known default."""
        net = session.table(f"global_temp.{self.net_view}").where(F.col("step") == row_set.step)
        defaults, gaps = absent_defaults(target.schema, step.absent, self.time_zone, step.encodings)
        absent = {**dict.fromkeys(step.absent_in_deletes), **defaults}
        encoding = RowEncoding(self.time_zone, step.encodings, absent, step.generated)
        rows = with_generated(typed_rows(net, target, encoding), target, encoding)
        return with_masks(rows, masked_cells(step.state), self.salt), encoding, gaps

    def _reject_bad_rows(
        self, rows: DataFrame, step: ApplyRows, commits: StepCommits, found: RowFindings, gaps: tuple[Gap, ...]
    ) -> list[Gap]:
        """Appends bad rows to `dead_letters`. Returns all gaps of the rows."""
        gaps = (*gaps, *found.gaps)
        if not found.bad:
            return [*gaps]
        part = commits(_DEAD_LETTERS)
        raw = self.lake.read("raw_topic_snapshot")
        commit = Commit(
            f"cdc:{self.lake.paths.pipeline}:bad_rows:{step.state.mirror_id}", part.version, dict(part.note)
        )
        append_once(value_dead_letters(rows, step.state, raw), self.lake.paths.table("dead_letters"), commit)
        message = f"{found.bad} row(s) with values that their types cannot hold: see dead_letters"
        return [*gaps, Gap(GapKind.BAD_VALUES, message)]


def _counts(found: RowFindings) -> RowCounts:
    return RowCounts(Merged(), found.bad, found.rejected, found.zero_dates)
