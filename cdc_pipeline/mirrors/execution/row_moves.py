"""Rows that leave a mirror or come into one without a message: those of partitions, and those that come back.

Each function is one Delta commit for each mirror it changes, skipped where that is in already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.lake.delta import append_once, forget_cached_log, is_in, replace_once
from cdc_pipeline.lake.paths import remove_folder
from cdc_pipeline.mirrors.changes.dropped_tables import truncated_version
from cdc_pipeline.mirrors.merge.computed_values import fitting_session, with_derived
from cdc_pipeline.mirrors.merge.merge_rows import Merged
from cdc_pipeline.mirrors.merge.soft_deletes import LIVE, deleted_cell, end_rows, live_rows
from cdc_pipeline.mysql.model.quoted_names import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from cdc_pipeline.lake.delta import Commit
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mirrors.model.step_commits import StepCommits
    from cdc_pipeline.mirrors.model.steps import DeleteRows, ExchangeRows, RestoreRows
    from cdc_pipeline.mysql.expressions.partition_rows import SparkCondition

    NoteGaps = Callable[[Sequence[Gap], Commit], None]

_ROWS = 1
"""The part of a step in which rows are written."""


def delete_rows(spark: SparkSession, path: str, step: DeleteRows, commits: StepCommits, note_gaps: NoteGaps) -> Merged:
    """Takes the step's rows away. Returns how many they were; the gaps that this leaves are noted first."""
    commit = commits(_ROWS)
    if is_in(spark, path, commit):
        return Merged()
    mirror = live_rows(spark.read.format("delta").load(path), keeps_deleted=step.state.keeps_deleted)
    gone, doubtful = _counted(mirror, step.rows)
    note_gaps(_doubt(doubtful, step.what), commits.finding(_ROWS))
    end_rows(spark, path, step.rows.sql, commit, keeps_deleted=step.state.keeps_deleted)
    return Merged(deleted=gone)


def _counted(mirror: DataFrame, rows: SparkCondition) -> tuple[int, int]:
    """How many rows there are of the condition, and how many of which it is not sure."""
    doubt = F.expr(rows.doubtful) if rows.doubtful is not None else F.lit(False)
    found = mirror.agg(F.count(F.when(F.expr(rows.sql), 1)), F.count(F.when(doubt, 1))).first()
    assert found is not None
    return found[0], found[1]


def _doubt(rows: int, what: str) -> tuple[Gap, ...]:
    words = f"{what}: of {rows} row(s) it is not sure whether they lay in the partitions"
    return (Gap(GapKind.UNSURE_PARTITION, words),) if rows else ()


def exchange_rows(
    spark: SparkSession,
    path: str | None,
    other: str | None,
    staged: str,
    step: ExchangeRows,
    commits: StepCommits,
    note_gaps: NoteGaps,
) -> None:
    """Lets the partition's rows and those of the other table change places: such as upstream has, what a mirror keeps beside
    them stays. The gaps that this leaves are noted first, with `path`.

    `path` and `other` are the two mirrors, None for one that a later step has taken elsewhere, which has its rows then.
    The rows that leave the first are set down in `staged` before it is changed: a run that dies between the two commits
    is followed by one that finds them there.
    """
    commit = commits(_ROWS)
    spark = fitting_session(spark, step.state, step.other)
    if path is not None and other is not None and not is_in(spark, path, commit):
        _first_half(spark, path, other, staged, step, commits, note_gaps)
    if other is not None and not is_in(spark, other, commit):
        gone = LIVE if step.other.keeps_deleted else None
        _replace_rows(spark, other, spark.read.format("delta").load(staged), gone, commit)
    remove_folder(spark, staged)


def _first_half(
    spark: SparkSession,
    path: str,
    other: str,
    staged: str,
    step: ExchangeRows,
    commits: StepCommits,
    note_gaps: NoteGaps,
) -> None:
    mirror = live_rows(spark.read.format("delta").load(path), keeps_deleted=step.state.keeps_deleted)
    _, doubtful = _counted(mirror, step.rows)
    theirs = [(name, mine) for mine, name in step.columns]
    # anew each time: what a run that died has set down may be of another plan
    remove_folder(spark, staged)
    forget_cached_log(spark, staged)
    _renamed(mirror.where(step.rows.sql), step.columns, step.other).write.format("delta").save(staged)
    there = live_rows(spark.read.format("delta").load(other), keeps_deleted=step.other.keeps_deleted)
    arriving = _renamed(there, theirs, step.state)
    strangers = 0 if step.validated else arriving.where(f"NOT ({step.rows.sql})").count()
    gone = f"({step.rows.sql}) AND {LIVE}" if step.state.keeps_deleted else step.rows.sql
    lost = (
        f"{step.what}: {strangers} row(s) came in that do not belong there, they are taken for rows of other partitions"
    )
    gaps = (*_doubt(doubtful, step.what), *((Gap(GapKind.UNSURE_PARTITION, lost),) if strangers else ()))
    note_gaps(gaps, commits.finding(_ROWS))
    _replace_rows(spark, path, arriving, gone, commits(_ROWS))


def _renamed(rows: DataFrame, names: Iterable[tuple[str, str]], target: MirrorState) -> DataFrame:
    """The columns of rows that are there under their names in the other table, `target`, with its own and what it derives of
    them."""
    own = _own_cells(rows, target, keeps_deleted=False)
    return with_derived(rows.select(*(F.col(quoted(old)).alias(new) for old, new in names), *own), target)


def _own_cells(rows: DataFrame, target: MirrorState, *, keeps_deleted: bool) -> list[Column]:
    """The trace that `target` has, NULL where the rows have none, and `_deleted` if it has that; `keeps_deleted`: the rows
    have it too."""
    trace = [
        F.col(field.name) if field.name in rows.columns else F.lit(None).cast(field.dataType).alias(field.name)
        for field in target.trace_fields
    ]
    return [*trace, *([deleted_cell(keeps_deleted=keeps_deleted)] if target.keeps_deleted else [])]


def _replace_rows(spark: SparkSession, path: str, arriving: DataFrame, gone: str | None, commit: Commit) -> None:
    """In one commit: the mirror's rows for which `gone` is true (all, without) go, and `arriving` comes."""
    types = {field.name: field.dataType for field in spark.read.format("delta").load(path).schema}
    rows = arriving.select(*(F.col(quoted(name)).cast(types[name]).alias(name) for name in arriving.columns))
    # without validation rows may come in that are not of the partition
    conf, key = spark.conf, "spark.databricks.delta.replaceWhere.constraintCheck.enabled"
    conf.set(key, "false")
    try:
        replace_once(rows, path, commit, gone)
    finally:
        conf.unset(key)


def restore_rows(
    spark: SparkSession, source: str, target: str, step: RestoreRows, commits: StepCommits, note_gaps: NoteGaps
) -> None:
    """Copies the rows that `source` had before its TRUNCATE into the empty `target`. The gaps that this leaves are noted
    first."""
    if is_in(spark, target, commits(_ROWS)):
        return
    found = truncated_version(spark, source, step.mark)
    if found is None:
        lost = f"the rows from before the TRUNCATE at {step.mark} are no longer in the log of {step.source.name}"
        note_gaps(_not_restored(lost), commits.finding(_ROWS))
        return
    if (found.masks, found.mask_key) != (dict(step.state.masks), step.state.mask_key):
        lost = f"the rows from before the TRUNCATE at {step.mark} are not masked as they have to be now"
        note_gaps(_not_restored(lost), commits.finding(_ROWS))
        return
    spark = fitting_session(spark, step.state)
    there = spark.read.format("delta").option("versionAsOf", found.version).load(source)
    if not step.state.keeps_deleted:
        there = live_rows(there, keeps_deleted=found.keeps_deleted)
    old = {name.casefold(): name for name in there.columns}
    columns, missing = [], []
    for column in step.state.schema.columns:
        name, kind = old.get(column.name.casefold()), step.state.column_type(column)
        if name is None:
            missing.append(column.name)
        value = F.lit(None) if name is None else F.col(quoted(name))
        columns.append(value.try_cast(kind).alias(column.name))
    own = _own_cells(there, step.state, keeps_deleted=found.keeps_deleted)
    if missing:
        words = f"columns that the table did not have before the TRUNCATE are NULL: {', '.join(missing)}"
        note_gaps(_not_restored(words), commits.finding(_ROWS))
    append_once(with_derived(there.select(*columns, *own), step.state), target, commits(_ROWS))


def _not_restored(words: str) -> tuple[Gap, ...]:
    return (Gap(GapKind.NOT_RESTORED, words),)
