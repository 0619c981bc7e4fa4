"""Runs an `ApplyRows` step: types, checks and masks its rows, rejects bad ones, and merges the others in one commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, dialect_has_trait
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.lake.delta import Commit, commit_session, is_committed, stored_bytes
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.small_tables import SmallTable, open_small_table
from cdc_pipeline.lake.tables.baselines import baseline_tables
from cdc_pipeline.lake.writes import append_once
from cdc_pipeline.mirrors.changes.dead_letters import value_dead_letters
from cdc_pipeline.mirrors.merge.baseline_rows import baseline_changes, baseline_encodings, baseline_records
from cdc_pipeline.mirrors.merge.computed_values import ComputedValues
from cdc_pipeline.mirrors.merge.default_values import default_value
from cdc_pipeline.mirrors.merge.masked_values import folded_images, masked_cells, with_masks
from cdc_pipeline.mirrors.merge.merge_rows import (
    Merged,
    append_rows,
    count_deleted,
    count_unknown_rows,
    merge_keyed,
    merge_keyless,
)
from cdc_pipeline.mirrors.merge.net_changes import NetRows
from cdc_pipeline.mirrors.merge.rewrite_rows import rewrite_keyed, rewrite_keyless
from cdc_pipeline.mirrors.merge.row_entries import RowSet
from cdc_pipeline.mirrors.merge.small_rows import StepRows, is_folded
from cdc_pipeline.mirrors.merge.step_context import StepContext
from cdc_pipeline.mirrors.merge.typed_rows import Target, typed_rows, with_generated
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import ApplyRows, LoadBaseline
from cdc_pipeline.mysql.expressions.conversions import absent_column_gaps
from cdc_pipeline.mysql.expressions.translation import can_translate_generated
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.table import Column as UpstreamColumn
from cdc_pipeline.mysql.types.local_times import local_time_gaps
from cdc_pipeline.positions import POSITION, Position
from cdc_pipeline.spark.jvm import allow_null_on_error, finished_metrics
from cdc_pipeline.spark.small_frames import is_small, totals

SMALL_MIRROR = 4 * 2**20
"""Mirror size in bytes up to which a merge rewrites files instead of writing deletion vectors.

A deletion vector costs one more pass and one more file per merge, which is more expensive than rewriting a few MB.
"""
TINY_MIRROR = 2**20
"""Mirror size in bytes up to which a merge is a small query (`small_query`): about ten thousand narrow rows."""
_SIX_DIGITS = "exports print FLOAT with six digits, so rows that have not changed since may differ in the last ones"
_DEAD_LETTERS, _ROWS = 0, 1
"""Parts of the step's commits."""


@dataclass
class RowCounts:
    """The result of an `ApplyRows` step."""

    merged: Merged = field(default_factory=Merged)
    existing: int = 0
    """Rows that an empty mirror has after the good rows are written."""
    deletes: int = 0
    """Number of rows of a keyless table that are to be deleted; 0 for a table with a key."""
    bad_rows: int = 0
    """Net changes with a value that its type cannot hold; they become dead letters."""
    first_bad: Position | None = None
    """The position of the first of them."""
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
    net: NetRows
    changes_found: Mapping[int, int] | None
    """Row changes of each step, if the cut was planned by an earlier run, which may have run some steps. Else None."""
    salt: str = field(default="", repr=False)
    """`mask_salt`."""

    def apply(self, context: StepContext, step: ApplyRows, row_set: RowSet) -> RowCounts:
        """Merges the step's rows into the mirror. Adds its gaps before it commits the rows.

        Raises LakeError if a resumed cut has another number of row changes than planned.
        """
        path, commit = context.path, context.commits(_ROWS)
        if self.changes_found is not None:
            if is_committed(self.lake.spark, path, commit):
                return self.recount(step, row_set)
            if self.changes_found[row_set.step] != step.changes:
                raise self.lake.error(
                    f"{step.state.name}: the resumed cut has {self.changes_found[row_set.step]} row changes, but "
                    f"{step.changes} were planned. Finish the cut with the version that started it: "
                    "this one groups changes differently"
                )
        rows = self.net.small.get(row_set.step)
        if rows is not None and rows.is_readable:
            mirror = open_small_table(path)
            if mirror is not None and set(rows.values.column_names) <= set(mirror.rows.column_names):
                return _rewrite(context, mirror, step, row_set, rows)
        size = stored_bytes(self.lake.spark, path)
        few = is_small(step.changes) and size <= TINY_MIRROR
        session = commit_session(self.lake.spark, commit, whole_files=size <= SMALL_MIRROR, small=few)
        state = step.state
        computed = ComputedValues(allow_null_on_error(session), state) if state.computed_shown else None
        target, gaps = self._target(step, row_set, computed)
        typed = self._rows(session, target, row_set)
        absent = _counted_absent(step)
        if absent:
            gaps += _unknown_rows(count_unknown_rows(session, path, typed, target, absent), absent)
        result, good = self._good_rows(context, typed, target, gaps)
        if result.deletes and not is_folded(row_set, state) and not _may_lack_rows(state):
            found = 0 if step.into_empty else count_deleted(session, path, good, target)
            context.add_gaps(_missing_rows(result.deletes - found), context.commits.for_gaps(_ROWS))
        # without deletes the rows of a keyless table are appended without reading the mirror
        if step.into_empty or (target.keyless and not result.deletes):
            append_rows(path, good, target, commit)
            result.merged = Merged(inserted=result.existing)
        elif target.keyless:
            good = folded_images(good, len(state.schema.columns)) if is_folded(row_set, state) else good
            result.merged = merge_keyless(session, path, good, target)
        else:
            result.merged = merge_keyed(session, path, good, target)
        return result

    def load(self, context: StepContext, step: LoadBaseline) -> RowCounts:
        """Appends the rows of a baseline to its new mirror. Adds its gaps before it commits the rows.

        The rows are counted while they are written. If there are findings among them, the files are not committed, and they
        are written again as those of `apply`.
        """
        path, commit, state = context.path, context.commits(_ROWS), step.state
        if is_committed(self.lake.spark, path, commit):
            return RowCounts()
        (loaded,) = (one for one in baseline_tables(self.lake, step.baseline) if one.name == step.source)
        session = commit_session(self.lake.spark, commit)
        rows = self.lake.read_path(self.lake.paths.baseline(step.baseline, step.source))
        changes = baseline_changes(rows, step)
        computed = ComputedValues(allow_null_on_error(session), state) if state.computed_shown else None
        key = step.key or tuple(state.schema.column_names)
        generated = [column for column in state.schema.columns if column.generated is not None]
        computed_here = [
            column for column in generated if can_translate_generated(column, state.schema, self.time_zone)
        ]
        names, encodings = [column.name for column in computed_here], baseline_encodings(step)
        target = Target(state, key, not step.key, computed, self.time_zone, encodings, {}, names)
        floats = [one.name for one in state.schema.columns if one.type.base == "float" and not loaded.has_exact_floats]
        gaps = [Gap(GapKind.FEW_DIGITS, _SIX_DIGITS, name) for name in floats]
        gaps += absent_column_gaps(_without_values(rows, [one for one in generated if one not in computed_here]))
        typed = typed_rows(changes, replace(target, time_zone=loaded.time_zone or self.time_zone))
        typed = with_masks(with_generated(typed, target), masked_cells(state), self.salt)
        context.add_gaps(gaps, context.commits.for_gaps(_ROWS))
        result = _append_without_findings(path, typed, target, commit)
        if result is None:
            result, good = self._good_rows(context, typed, target, [], baseline_records(changes))
            append_rows(path, good, target, commit)
        # no changes of the stream: a cut counts what becomes of those
        return replace(result, merged=Merged(inserted=result.existing), rejected=0)

    def _good_rows(
        self, context: StepContext, typed: DataFrame, target: Target, gaps: list[Gap], records: DataFrame | None = None
    ) -> tuple[RowCounts, DataFrame]:
        """The rows without bad values, which become dead letters. Adds `gaps` and those of the rows.

        `records`: where dead letters find their bytes; None: in the raw snapshot.
        """
        result, found = _examined(typed, keyless=target.keyless)
        gaps = [*gaps, *found]
        if result.bad_rows:
            part = context.commits(_DEAD_LETTERS)
            commit = replace(part, app_id=f"cdc:{self.lake.paths.pipeline}:bad_rows:{target.state.mirror_id}")
            raw = self.lake.read("raw_topic_snapshot") if records is None else records
            append_once(value_dead_letters(typed, target.state, raw), self.lake.paths.table("dead_letters"), commit)
            detail = f"{result.bad_rows} row(s) with values that their types cannot hold: see dead_letters"
            gaps.append(Gap(GapKind.BAD_VALUES, detail, example=str(result.first_bad)))
        context.add_gaps(gaps, context.commits(_DEAD_LETTERS))
        return result, typed.where("size(bad) = 0") if result.bad_rows else typed

    def recount(self, step: ApplyRows, row_set: RowSet) -> RowCounts:
        """Counts the rows of a step that an earlier run of the cut has merged; `merged` is not known any more."""
        target, _ = self._target(step, row_set, None)
        return _examined(self._rows(self.lake.spark, target, row_set), keyless=target.keyless)[0]

    def _target(self, step: ApplyRows, row_set: RowSet, computed: ComputedValues | None) -> tuple[Target, list[Gap]]:
        """The mirror of the step, and the gaps of absent columns without a known default."""
        defaults, gaps = _absent_defaults(step, self.time_zone)
        target = Target(
            step.state,
            row_set.columns,
            row_set.keyless,
            computed,
            self.time_zone,
            step.encodings,
            {**dict.fromkeys(step.absent_in_deletes), **defaults},
            step.generated,
        )
        return target, gaps

    def _rows(self, session: SparkSession, target: Target, row_set: RowSet) -> DataFrame:
        """The typed, masked rows of a step."""
        net = session.table(f"global_temp.{self.net.view}").where(F.col("step") == row_set.step)
        return with_masks(with_generated(typed_rows(net, target), target), masked_cells(target.state), self.salt)


def _without_values(rows: DataFrame, columns: Sequence[UpstreamColumn]) -> list[UpstreamColumn]:
    """Those of the columns that are NULL in all rows of a baseline: most programs do not export generated columns."""
    if not columns:
        return []
    counts = totals(rows, *(F.count(quoted(column.name)) for column in columns))
    return [column for column, count in zip(columns, counts, strict=True) if not count]


def _rewrite(context: StepContext, mirror: SmallTable, step: ApplyRows, row_set: RowSet, rows: StepRows) -> RowCounts:
    """`RowMerger.apply` for a small mirror, by the driver."""
    absent, state = _counted_absent(step), step.state
    if row_set.keyless:
        result = rewrite_keyless(mirror.rows, rows, state)
        unknown = [] if _may_lack_rows(state) else _missing_rows(result.unknown)
    else:
        result = rewrite_keyed(mirror.rows, rows, state, row_set.columns, absent)
        unknown = _unknown_rows(result.unknown, absent)
    gaps = [*unknown, *_gaps(rows.found)]
    context.add_gaps(gaps, context.commits(_DEAD_LETTERS))
    mirror.replace(result.rows, context.commits(_ROWS))
    return RowCounts(result.merged, zero_dates=rows.found["zero"])


def _counted_absent(step: ApplyRows) -> list[str]:
    """The absent columns without a gap that covers rows whose values are unknown."""
    named = {gap.column for gap in step.state.gaps if gap.kind is GapKind.PARTIAL_IMAGES}
    return [name for name in step.absent if name not in named]


def _unknown_rows(count: int, absent: Sequence[str]) -> list[Gap]:
    message = (
        f"{count} row(s) were updated without some columns and did not exist in the mirror under their key, so "
        f"these columns are NULL: {', '.join(absent)}"
    )
    return [Gap(GapKind.UNKNOWN_ROWS, message)] if count else []


def _may_lack_rows(state: MirrorState) -> bool:
    """Whether a gap of the table already covers rows that the mirror does not have."""
    return any(gap.column is None for gap in state.gaps)


def _missing_rows(count: int) -> list[Gap]:
    """The gap of a table without a key."""
    message = (
        f"{count} row(s) of a table without a key were changed or deleted that the mirror does not have: changes before "
        "them are missing, or a type change converted the values differently"
    )
    return [Gap(GapKind.UNKNOWN_ROWS, message)] if count else []


def _absent_defaults(step: ApplyRows, time_zone: str) -> tuple[dict[str, Column | None], list[Gap]]:
    """The default of each absent column (None: unknown or NULL), and gaps for unknown ones.

    All are None without a dialect whose INSERTs omit defaults.
    """
    schema, gaps = step.state.schema, list[Gap]()
    defaults: dict[str, Column | None] = dict.fromkeys(step.absent)
    omits = any(dialect_has_trait(dialect, Trait.ABSENT_IS_DEFAULT) for dialect, _ in step.encodings)
    for name in step.absent if omits else ():
        column = schema.find(name)
        assert column is not None
        try:
            defaults[name] = default_value(column, schema, time_zone)[0] if column.has_constant_default else None
        except ValueError as error:
            gaps.append(Gap(GapKind.ABSENT_DEFAULT, f"of rows that came without it is NULL: {error}", name))
    return defaults, gaps


def _append_without_findings(path: str, rows: DataFrame, target: Target, commit: Commit) -> RowCounts | None:
    """Appends the rows of a baseline and counts them meanwhile. None, without a commit, if rows are bad or make gaps."""
    observation, metrics = Observation(), dict[str, int | None]()
    found = F.expr("size(bad) > 0 OR size(damaged) > 0 OR size(doubtful) > 0 OR size(ambiguous_times) > 0")
    observed = rows.observe(
        observation,
        F.count_if(found).alias("found"),
        F.sum(_existing(keyless=target.keyless)).alias("existing"),
        F.sum("zero_dates").alias("zero"),
    )

    def is_clean() -> bool:
        metrics.update(finished_metrics(observation) or {})
        return metrics.get("found") == 0

    if not append_rows(path, observed, target, commit, is_clean):
        return None
    return RowCounts(existing=metrics["existing"] or 0, zero_dates=metrics["zero"] or 0)


def _existing(*, keyless: bool) -> Column:
    """How many rows an empty mirror has of a row of `with_generated`."""
    return F.greatest("delta", F.lit(0)) if keyless else F.when(F.col("deleted") | F.col("update_only"), 0).otherwise(1)


def _examined(rows: DataFrame, *, keyless: bool) -> tuple[RowCounts, list[Gap]]:
    """The counts and gaps of rows of `with_generated`, found in one query before they are written."""
    existing = _existing(keyless=keyless)
    good = F.size("bad") == 0
    key_only = F.when(good & ~F.col("deleted"), F.col("key_only_since"))
    position = F.struct(*(f"_{name}" for name in POSITION))
    unordered = F.when(F.col("order_unknown"), position)
    counts = totals(
        rows,
        F.count(F.when(~good, 1)).alias("bad"),
        F.min(F.when(~good, position)).alias("first_bad"),
        F.count(F.when(~good & F.col("counts"), 1)).alias("rejected"),
        F.sum(F.when(good, existing)).alias("existing"),
        (F.sum(F.when(good, F.greatest(-F.col("delta"), F.lit(0)))) if keyless else F.lit(0)).alias("deletes"),
        F.sum("zero_dates").alias("zero"),
        *(_distinct(name).alias(name) for name in ("damaged", "doubtful", "ambiguous_times")),
        F.count_if("order_unknown").alias("unordered"),
        F.min(unordered).alias("first_unordered"),
        F.count(key_only).alias("key_only"),
        F.min(key_only).alias("first_key_only"),
    )
    result = RowCounts(
        existing=counts["existing"] or 0,
        deletes=counts["deletes"] or 0,
        bad_rows=counts["bad"],
        first_bad=Position(*counts["first_bad"]) if counts["bad"] else None,
        rejected=counts["rejected"],
        zero_dates=counts["zero"] or 0,
    )
    return result, list(_gaps(counts.asDict()))


def _distinct(name: str) -> Column:
    """The distinct items of an array column over all rows."""
    return F.array_distinct(F.flatten(F.collect_set(F.when(F.size(name) > 0, F.col(name)))))


def _gaps(counts: Mapping[str, Any]) -> Iterator[Gap]:
    for name in sorted(counts["damaged"]):
        yield Gap(GapKind.DAMAGED_TEXT, "the encoder has damaged its text", name)
    for name in sorted(counts["doubtful"]):
        yield Gap(GapKind.UNSURE_FORMULA, "values of some rows may differ from what upstream computes", name)
    if counts["unordered"]:
        yield Gap(
            GapKind.UNSURE_ORDER,
            f"{counts['unordered']} row(s) were changed in several partitions at the same time, the first at "
            f"{Position(*counts['first_unordered'])}: the messages do not show which change was the last",
        )
    yield from local_time_gaps(counts["ambiguous_times"])
    if counts["key_only"]:
        first = counts["first_key_only"]
        yield Gap(
            GapKind.HANDLE_KEY_ONLY,
            f"{counts['key_only']} row(s) were too large for a message and were sent with their handle key only, the first "
            f"at {Position(*(first[name] for name in POSITION))}: their other columns keep the earlier values, or "
            "are NULL if there were none",
        )
