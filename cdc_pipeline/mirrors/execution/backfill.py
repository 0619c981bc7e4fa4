"""Backfills the values that ALTER TABLE gives to existing rows: defaults of added columns, and generated columns.

MySQL fills them without sending a row (ticdc-facts §10).
"""

from __future__ import annotations

from collections.abc import Set

from delta.tables import DeltaTable
from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.lake.delta import Commit, commit_session, is_committed
from cdc_pipeline.lake.writes import overwrite_once
from cdc_pipeline.mirrors.merge.default_values import default_value
from cdc_pipeline.mirrors.merge.masked_values import masked_columns, with_masks
from cdc_pipeline.mirrors.merge.soft_deletes import live_rows
from cdc_pipeline.mirrors.merge.step_context import StepContext, found_in
from cdc_pipeline.mirrors.model.masks import NULL
from cdc_pipeline.mirrors.model.steps import ChangeColumns
from cdc_pipeline.mysql.ddl.tokens import words_in
from cdc_pipeline.mysql.expressions.translation import ExpressionError, Now, translate_assignment
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.table import Column as UpstreamColumn

Values = dict[str, tuple[Column, Column | None]]
"""Column → its value, and a boolean that is true if the value may differ from upstream's; None: it never does."""

_FIRST = 4
"""The first part of the step that backfills columns."""


def backfill_columns(context: StepContext, step: ChangeColumns, rewritten: Set[str]) -> None:
    """Fills added and generated columns, with one commit for all columns that depend on no unfilled one.

    `rewritten`: the columns whose values the step has converted. Generated columns that read a masked column are not
    computed.
    """
    commits = context.commits
    gaps: list[Gap] = []
    nulls = {name for name, mask in step.state.masks if mask == NULL}
    added = {origin.after.name for origin in step.origins if origin.before is None}
    due = (columns_to_generate(step, rewritten) | added) - nulls
    # not from the state, whose schema has no masked defaults
    remaining = [origin.after for origin in step.origins if origin.after.name in due]
    part = 0
    while remaining:
        unfilled = {column.name for column in remaining}
        ready = [column for column in remaining if not (_read_columns(column, step) - {column.name}) & unfilled]
        if not ready:
            gaps += [_null(column, "its default or expression depends on itself") for column in remaining]
            break
        values: Values = {}
        for column in ready:
            try:
                value, doubtful = _value(column, step, context.time_zone)
            except ValueError as error:
                gaps.append(_unknown(column, step, error))
                continue
            if value is not None:
                values[column.name] = value, doubtful
        remaining = [column for column in remaining if column not in ready]
        if values and not is_committed(context.spark, context.path, commits(_FIRST + part)):
            doubts = _doubts(context, values, step)
            context.add_gaps(doubts, commits.for_gaps(_FIRST + part))
            _write_values(context, values, commits(_FIRST + part), step)
        part += 1
    gaps += _replaced_nulls(context, step)
    context.add_gaps(gaps, commits.for_gaps(commits.last))


def columns_to_generate(step: ChangeColumns, rewritten: Set[str]) -> set[str]:
    """The generated columns with other values after the step: redefined ones, and those that read changed columns."""
    generated = [column for column in step.state.schema.columns if column.generated is not None]
    found = {origin.after.name for origin in step.origins if _is_redefined(origin.before, origin.after)}
    while True:
        changed = rewritten | found
        more = {column.name for column in generated if _read_columns(column, step) & changed} - found
        if not more:
            return found
        found |= more


def _is_redefined(before: UpstreamColumn | None, after: UpstreamColumn) -> bool:
    if after.generated is None:
        return False
    return before is None or (before.expression, before.type) != (after.expression, after.type)


def _read_columns(column: UpstreamColumn, step: ChangeColumns) -> set[str]:
    """The columns that the column's expression or default may read: each word that is a column's name."""
    default = column.default if column.generated is None else None
    text = default.value if default is not None and default.kind == "expression" else column.expression
    words = words_in(text or "")
    return {other.name for other in step.state.schema.columns if other.name.casefold() in words}


def _value(column: UpstreamColumn, step: ChangeColumns, time_zone: str) -> tuple[Column | None, Column | None]:
    """As `default_value`, also of a generated column."""
    shown = step.state.shown_schema
    if column.generated is None:
        return default_value(column, step.state.schema, time_zone, Now(step.commit_ms, step.is_start), shown)
    if masked := sorted(_read_columns(column, step) & set(dict(step.state.masks)) - {column.name}):
        raise ExpressionError(f"the mirror masks {', '.join(masked)}")
    found = translate_assignment(column.expression or "", column, shown, time_zone)
    return F.expr(found.sql), None if found.doubtful is None else F.expr(found.doubtful)


def _unknown(column: UpstreamColumn, step: ChangeColumns, error: ValueError) -> Gap:
    """The gap of a column whose value `_value` does not know."""
    if column.generated is None:
        return _null(column, "its default is masked" if column.name in dict(step.state.masks) else str(error))
    detail = f"is not recomputed in older rows (upstream's expression: {column.expression}): {error}"
    return Gap(GapKind.NOT_COMPUTED, detail, column.name)


def _null(column: UpstreamColumn, reason: str) -> Gap:
    return Gap(GapKind.NULL_IN_OLDER_ROWS, f"is NULL in older rows: {reason}", column.name)


def _doubts(context: StepContext, values: Values, step: ChangeColumns) -> list[Gap]:
    """The gaps of values that may differ from upstream's in some rows."""
    doubts = {name: doubtful for name, (_, doubtful) in values.items() if doubtful is not None}
    rows = live_rows(context.mirror(), keeps_deleted=step.state.has_soft_delete)
    return [
        Gap(GapKind.UNSURE_FORMULA, f"{count} older row(s) may differ from what upstream computes", name)
        for name, count in found_in(rows, doubts)
    ]


def _replaced_nulls(context: StepContext, step: ChangeColumns) -> list[Gap]:
    """The gaps of columns that became NOT NULL and are NULL in some rows.

    None in a merged mirror, where other tables may have NULL, and if the definition was only learnt.
    """
    masks = dict(step.state.masks)
    names = [
        origin.after.name for origin in step.origins if origin.loses_nulls and masks.get(origin.after.name) != NULL
    ]
    is_learnt = step.before.inferred and not step.state.inferred
    if not names or is_learnt or step.state.source_tables is not None:
        return []
    if is_committed(context.spark, context.path, context.commits(context.commits.last)):
        return []  # a resumed cut: later steps may have dropped or renamed the columns
    rows = live_rows(context.mirror(), keeps_deleted=step.state.has_soft_delete)
    return [
        Gap(GapKind.NO_EXACT_EQUIVALENT, f"{count} older row(s) have NULL, but the column is NOT NULL now", name)
        for name, count in found_in(rows, {name: F.col(quoted(name)).isNull() for name in names})
    ]


def _write_values(context: StepContext, values: Values, commit: Commit, step: ChangeColumns) -> None:
    masked = {name: cell for name, cell in masked_columns(step.state).items() if name in values}
    if masked:
        # an UPDATE would have the salt in its query plan
        mirror = context.mirror()
        filled = [
            values[name][0].alias(name) if name in values else F.col(quoted(name)).alias(name)
            for name in mirror.columns
        ]
        overwrite_once(with_masks(mirror.select(*filled), masked, context.salt), context.path, commit)
        return
    update: dict[str, str | Column] = {quoted(name): value for name, (value, _) in values.items()}
    DeltaTable.forPath(commit_session(context.spark, commit), context.path).update(set=update)
