"""Steps that delete or exchange rows without a message: TRUNCATE, EXCHANGE and DROP PARTITION.

Each function makes one Delta commit per mirror that it changes, and skips a commit that the mirror already contains.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.lake.delta import Commit, commit_metadata, forget_cached_log, is_committed, table_state
from cdc_pipeline.lake.paths import remove_folder
from cdc_pipeline.lake.writes import replace_once
from cdc_pipeline.mirrors.merge.computed_values import fitting_session, with_computed
from cdc_pipeline.mirrors.merge.merge_rows import Merged
from cdc_pipeline.mirrors.merge.soft_deletes import LIVE, delete_or_mark_rows, deleted_cell, live_rows
from cdc_pipeline.mirrors.merge.step_context import StepContext, found_in
from cdc_pipeline.mirrors.model.state import MirrorState, has_row_gaps, no_row_gaps
from cdc_pipeline.mirrors.model.steps import DeleteRows, ExchangeRows, TruncateMirror
from cdc_pipeline.mysql.expressions.partition_rows import SparkCondition
from cdc_pipeline.mysql.model.quoted_names import quoted

_ROWS = 1
"""The part of a step that writes rows."""


def truncate_rows(context: StepContext, step: TruncateMirror) -> None:
    """Deletes all rows, or marks them as deleted (`soft_delete`), and removes the gaps that were found in them."""
    keeps_deleted = step.state.has_soft_delete
    delete_or_mark_rows(context.spark, context.path, None, context.commits(0), keeps_deleted=keeps_deleted)
    table = table_state(context.spark, context.path)
    if table is not None and has_row_gaps(table):
        commit_metadata(context.spark, context.path, context.commits(1), properties=no_row_gaps())


def delete_rows(context: StepContext, step: DeleteRows) -> Merged:
    """Deletes the step's rows, or marks them as deleted (`soft_delete`). Returns how many."""
    commit = context.commits(_ROWS)
    if is_committed(context.spark, context.path, commit):
        return Merged()
    mirror = live_rows(context.mirror(), keeps_deleted=step.state.has_soft_delete)
    found = dict(found_in(mirror, {"deleted": F.expr(step.rows.sql), **_doubt(step.rows)}))
    deleted, doubtful = found.get("deleted", 0), found.get("doubtful", 0)
    context.add_gaps(_partition_gaps(doubtful, step.description), context.commits.for_gaps(_ROWS))
    delete_or_mark_rows(context.spark, context.path, step.rows.sql, commit, keeps_deleted=step.state.has_soft_delete)
    return Merged(deleted=deleted)


def _doubt(rows: SparkCondition) -> dict[str, Column]:
    """For `found_in`: the condition of the rows that may or may not be in the partitions."""
    return {} if rows.doubtful is None else {"doubtful": F.expr(rows.doubtful)}


def _partition_gaps(doubtful: int, what: str) -> tuple[Gap, ...]:
    detail = f"{what}: it is uncertain whether {doubtful} row(s) belong to these partitions"
    return (Gap(GapKind.UNSURE_PARTITION, detail),) if doubtful else ()


def exchange_rows(context: StepContext, step: ExchangeRows, path: str | None, other: str | None, staged: str) -> None:
    """Exchanges the rows of a partition with all rows of the other table. Deleted rows and kept columns stay.

    `path`, `other`: folders of the two mirrors; None for a mirror that a later step has moved, whose rows are exchanged
    already. `staged`: a folder for the partition's rows, written before the first mirror changes: a run that resumes
    between the two commits reads them there.
    """
    commit = context.commits(_ROWS)
    session = fitting_session(context.spark, step.state, step.other)
    if path is not None and other is not None and not is_committed(session, path, commit):
        _fill_partition(session, context, step, other, staged)
    if other is not None and not is_committed(session, other, commit):
        deleted = LIVE if step.other.has_soft_delete else None
        _replace_rows(session, other, session.read.format("delta").load(staged), deleted, commit)
    remove_folder(session, staged)


def _fill_partition(session: SparkSession, context: StepContext, step: ExchangeRows, other: str, staged: str) -> None:
    """Stages the rows of the partition and replaces them by those of the other table."""
    mirror = live_rows(session.read.format("delta").load(context.path), keeps_deleted=step.state.has_soft_delete)
    doubtful = dict(found_in(mirror, _doubt(step.rows))).get("doubtful", 0)
    back = [(name, mine) for mine, name in step.columns]
    # an interrupted run may have left rows of another plan
    remove_folder(session, staged)
    forget_cached_log(session, staged)
    _as_rows_of(step.other, mirror.where(step.rows.sql), step.columns).write.format("delta").save(staged)
    theirs = live_rows(session.read.format("delta").load(other), keeps_deleted=step.other.has_soft_delete)
    arriving = _as_rows_of(step.state, theirs, back)
    strangers = 0 if step.validated else arriving.where(f"NOT ({step.rows.sql})").count()
    deleted = f"({step.rows.sql}) AND {LIVE}" if step.state.has_soft_delete else step.rows.sql
    detail = (
        f"{step.description}: {strangers} row(s) that do not belong to the partition came in (WITHOUT VALIDATION); the "
        "mirror treats them as rows of other partitions"
    )
    strange = (Gap(GapKind.UNSURE_PARTITION, detail),) if strangers else ()
    context.add_gaps((*_partition_gaps(doubtful, step.description), *strange), context.commits.for_gaps(_ROWS))
    _replace_rows(session, context.path, arriving, deleted, context.commits(_ROWS))


def _as_rows_of(target: MirrorState, rows: DataFrame, names: Iterable[tuple[str, str]]) -> DataFrame:
    """The rows with the columns of `target`. `names`: (column of `rows`, column of `target`). Metadata columns that the rows
    lack are NULL."""
    own = [
        F.col(field.name) if field.name in rows.columns else F.lit(None).cast(field.dataType).alias(field.name)
        for field in target.metadata_fields
    ]
    if target.has_soft_delete:
        own.append(deleted_cell(keeps_deleted=False))
    return with_computed(rows.select(*(F.col(quoted(old)).alias(new) for old, new in names), *own), target)


def _replace_rows(spark: SparkSession, path: str, arriving: DataFrame, deleted: str | None, commit: Commit) -> None:
    """In one commit, deletes the rows for which the SQL `deleted` is true (None: all) and appends `arriving`."""
    types = {field.name: field.dataType for field in spark.read.format("delta").load(path).schema}
    rows = arriving.select(*(F.col(quoted(name)).cast(types[name]).alias(name) for name in arriving.columns))
    # without validation, rows that are not of the partition may come in
    conf, key = spark.conf, "spark.databricks.delta.replaceWhere.constraintCheck.enabled"
    conf.set(key, "false")
    try:
        replace_once(rows, path, commit, deleted)
    finally:
        conf.unset(key)
