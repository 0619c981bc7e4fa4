"""The values that ALTER TABLE gives to columns of rows that are there: defaults of added columns, and generated columns.

MySQL fills them without sending a row (ticdc-facts §10).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta.tables import DeltaTable
from pyspark.sql import functions as F

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.lake.delta import is_in, overwrite_once, session_for
from cdc_pipeline.mirrors.merge.default_values import default_value, is_current_time
from cdc_pipeline.mirrors.merge.masked_values import with_masks
from cdc_pipeline.mirrors.merge.soft_deletes import live_rows
from cdc_pipeline.mirrors.model.masks import NULL
from cdc_pipeline.mysql.ddl.tokens import Cursor, Kind
from cdc_pipeline.mysql.expressions.translation import ExpressionError, assigned
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.types.spark_types import spark_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, SparkSession

    from cdc_pipeline.lake.delta import Commit
    from cdc_pipeline.mirrors.model.step_commits import StepCommits
    from cdc_pipeline.mirrors.model.steps import ChangeColumns
    from cdc_pipeline.mysql.model.table import Column as UpstreamColumn

    Values = dict[str, tuple[Column, Column | None]]
    """Column → its value, and whether that is not sure."""

_FIRST = 4
"""The first of the parts of the step in which columns are filled."""


def fill_columns(
    spark: SparkSession,
    path: str,
    step: ChangeColumns,
    commits: StepCommits,
    time_zone: str,
    salt: str,
    note_gaps: Callable[[Sequence[Gap], Commit], None],
) -> None:
    """Fills what the step leaves to be filled, one commit after another where one column follows from another. The gaps
    that this leaves are noted first. `salt` is that of masked values; what would follow from them is not computed."""
    gaps: list[Gap] = []
    values = _defaults(step, time_zone, gaps)
    nulls = {name for name, how in step.state.masks if how == NULL}
    waiting = [
        origin.after
        for origin in step.origins
        if _is_computed_anew(origin.before, origin.after) and origin.after.name not in nulls
    ]
    part = 0
    while values or waiting:
        blocked = {column.name for column in waiting} | set(values)
        ready = [column for column in waiting if not (_referred(column, step) - {column.name}) & blocked]
        if not values and not ready:
            gaps += [_null(column, "it follows from itself") for column in waiting]
            break
        for column in ready:
            values.update(_computed(column, step, time_zone, gaps))
        waiting = [column for column in waiting if column not in ready]
        if values and not is_in(spark, path, commits(_FIRST + part)):
            doubts = _doubts(spark, path, values, step)
            note_gaps(doubts, commits.finding(_FIRST + part))
            _update(spark, path, values, commits(_FIRST + part), step, salt)
        values, part = {}, part + 1
    note_gaps(gaps, commits.finding(commits.last))


def _is_computed_anew(before: UpstreamColumn | None, after: UpstreamColumn) -> bool:
    if after.generated is None:
        return False
    return before is None or (before.expression, before.type) != (after.expression, after.type)


def _referred(column: UpstreamColumn, step: ChangeColumns) -> set[str]:
    """The columns that may be meant by the words of the column's formula."""
    names = {other.name.casefold(): other.name for other in step.state.schema.columns}
    cursor, found = Cursor(column.expression or ""), set()
    while not cursor.done:
        word = cursor.skip()
        if word.kind in (Kind.WORD, Kind.QUOTED) and word.text.casefold() in names:
            found.add(names[word.text.casefold()])
    return found


def _defaults(step: ChangeColumns, time_zone: str, gaps: list[Gap]) -> Values:
    found: Values = {}
    masks = dict(step.state.masks)
    for origin in step.origins:
        column = origin.after
        if origin.before is not None or column.generated is not None or masks.get(column.name) == NULL:
            continue
        try:
            if column.default is not None and column.default.kind == "expression" and not is_current_time(column):
                expression = assigned(
                    column.default.value or "", column, step.state.shown_schema, time_zone, step.commit_ms
                )
                doubtful = None if expression.doubtful is None else F.expr(expression.doubtful)
                found[column.name] = (F.expr(expression.sql), doubtful)
            elif (value := default_value(column, step.commit_ms, time_zone, step.state.schema)) is not None:
                found[column.name] = (value, None)
        except ValueError as error:
            reason = "its default is not known here" if column.name in masks else str(error)
            gaps.append(_null(column, reason))
    return found


def _null(column: UpstreamColumn, reason: str) -> Gap:
    return Gap(GapKind.NULL_IN_OLDER_ROWS, f"of older rows is NULL: {reason}", column.name)


def _computed(column: UpstreamColumn, step: ChangeColumns, time_zone: str, gaps: list[Gap]) -> Values:
    try:
        if masked := sorted(_referred(column, step) & set(dict(step.state.masks)) - {column.name}):
            raise ExpressionError(f"the mirror has {', '.join(masked)} masked")
        found = assigned(column.expression or "", column, step.state.shown_schema, time_zone)
    except ExpressionError as error:
        words = f"of older rows is not what upstream computes as {column.expression}: {error}"
        gaps.append(Gap(GapKind.NOT_COMPUTED, words, column.name))
        return {}
    return {column.name: (F.expr(found.sql), None if found.doubtful is None else F.expr(found.doubtful))}


def _doubts(spark: SparkSession, path: str, values: Values, step: ChangeColumns) -> list[Gap]:
    """The gaps of values that are not sure for some rows."""
    doubts = {name: doubtful for name, (_, doubtful) in values.items() if doubtful is not None}
    if not doubts:
        return []
    counts = [F.count(F.when(doubtful, 1)).alias(f"d{place}") for place, doubtful in enumerate(doubts.values())]
    mirror = live_rows(spark.read.format("delta").load(path), keeps_deleted=step.state.keeps_deleted)
    found = mirror.agg(*counts).first()
    assert found is not None
    return [
        Gap(GapKind.UNSURE_FORMULA, f"what upstream computes is not sure for {count} older row(s)", name)
        for name, count in zip(doubts, found, strict=True)
        if count
    ]


def _update(spark: SparkSession, path: str, values: Values, commit: Commit, step: ChangeColumns, salt: str) -> None:
    masks = dict(step.state.masks)
    masked = {
        column.name: (spark_type(column.type), masks[column.name])
        for column in step.state.schema.columns
        if column.name in values and column.name in masks
    }
    if masked:
        # an UPDATE would have to have the salt in its plan
        mirror = spark.read.format("delta").load(path)
        filled = [
            values[name][0].alias(name) if name in values else F.col(quoted(name)).alias(name)
            for name in mirror.columns
        ]
        overwrite_once(with_masks(mirror.select(*filled), masked, salt), path, commit)
        return
    update: dict[str, str | Column] = {quoted(name): value for name, (value, _) in values.items()}
    DeltaTable.forPath(session_for(spark, commit), path).update(set=update)
