"""Evaluates `computed` columns (`mirrors.model.computed_columns`) over the values of the mirror, which may be masked.

An expression that fails for a row is NULL in that row. One that Spark cannot analyze, or that is not a deterministic
function of its row, is NULL in all rows. Neither stops a cut.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from delta.tables import DeltaTable
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from cdc_pipeline.lake.delta import Commit, commit_session
from cdc_pipeline.mirrors.model.computed_columns import ComputedColumn
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import ChangeColumns, Step, final_states
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.table import ColumnOrigin
from cdc_pipeline.spark.jvm import allow_null_on_error, nondeterminism, null_on_error

_EXPECTED = "expected Spark's deterministic functions of the row's columns"
_LOG_LOCK = threading.Lock()


@dataclass(frozen=True)
class ComputedValues:
    """The computed columns of a mirror as expressions."""

    session: SparkSession
    """The session of the frames; it went through `allow_null_on_error` (see `fitting_session`)."""
    state: MirrorState

    def over(self, cells: Mapping[str, str]) -> dict[str, Column]:
        """The value of each computed column. `cells`: SQL of the value of each upstream column."""
        unusable = self.unusable
        return {
            column.name: self._null(column) if column.name in unusable else self._value(column, cells)
            for column in self.state.computed_shown
        }

    def _value(self, column: ComputedColumn, cells: Mapping[str, str]) -> Column:
        sql = column.expression.to_sql(cells)
        if sql is None:
            return self._null(column)
        return null_on_error(self.session, F.expr(f"try_cast(({sql}) AS {column.type})"))

    def _null(self, column: ComputedColumn) -> Column:
        return F.lit(None).cast(column.data_type)

    @functools.cached_property
    def unusable(self) -> dict[str, str]:
        """Columns without values, each with its expression and the reason or the first line of Spark's error."""
        shown = self.state.computed_shown
        if not shown:
            return {}
        cells = {name: f"value_{index}" for index, name in enumerate(self.state.schema.column_names)}
        fields = [
            StructField(cells[column.name], self.state.column_type(column)) for column in self.state.schema.columns
        ]
        # from an RDD: the optimizer skips expressions over a local relation, which it knows to be empty
        empty = self.session.createDataFrame(self.session.sparkContext.emptyRDD(), StructType(fields))
        reasons = {}
        for column in shown:
            with _query_log_disabled():
                try:
                    query = empty.select(self._value(column, cells))
                    if reason := nondeterminism(query):
                        reasons[column.name] = f"{column.sql!r} {reason}; {_EXPECTED}"
                        continue
                    # the optimizer evaluates constant expressions
                    query._jdf.queryExecution().optimizedPlan()
                except (PySparkException, Py4JError) as error:
                    first = str(error).split("\n")[0].split(" SQLSTATE")[0]
                    reasons[column.name] = f"{column.sql!r}: {first}"
        return reasons


@contextlib.contextmanager
def _query_log_disabled() -> Iterator[None]:
    """Disables the log in which PySpark prints a page for each analysis error."""
    log = logging.getLogger("SQLQueryContextLogger")
    with _LOG_LOCK:  # mirrors are merged in parallel
        before, log.disabled = log.disabled, True
        try:
            yield
        finally:
            log.disabled = before


def fitting_session(spark: SparkSession, *states: MirrorState) -> SparkSession:
    """The session itself. If a mirror has computed columns, a new one prepared by `allow_null_on_error`."""
    return allow_null_on_error(spark.newSession()) if any(state.computed_shown for state in states) else spark


def with_computed(frame: DataFrame, state: MirrorState) -> DataFrame:
    """Adds the computed columns to a frame that has upstream's columns. Its session comes from `fitting_session`."""
    cells = {column.name: quoted(column.name) for column in state.schema.columns}
    values = ComputedValues(frame.sparkSession, state).over(cells)
    return frame.select("*", *(value.alias(name) for name, value in values.items()))


def recompute_columns(
    spark: SparkSession, path: str, state: MirrorState, columns: Collection[ComputedColumn], commit: Commit
) -> None:
    """Recomputes these columns in all rows of the mirror, in one commit that is skipped if it exists."""
    names = {column.name for column in columns}
    cells = {column.name: quoted(column.name) for column in state.schema.columns}
    session = allow_null_on_error(commit_session(spark, commit))
    values: dict[str, str | Column] = {
        quoted(name): value for name, value in ComputedValues(session, state).over(cells).items() if name in names
    }
    if values:
        DeltaTable.forPath(session, path).update(set=values)


def computed_problems(spark: SparkSession, steps: Iterable[Step]) -> list[str]:
    """One line per computed column without values or missing, of the mirrors that exist after the steps."""
    session = spark
    problems = []
    for state in sorted(final_states(steps), key=lambda state: state.name):
        session = fitting_session(session, state) if session is spark else session
        unusable = ComputedValues(session, state).unusable.items()
        reasons = {name: f"is NULL: {reason}" for name, reason in unusable} | unavailable_columns(state)
        problems += [f"computed: {state.name}.{name} {reason}" for name, reason in reasons.items()]
    return problems


def columns_to_recompute(step: ChangeColumns, is_changed: Callable[[ColumnOrigin], bool]) -> list[ComputedColumn]:
    """Computed columns that existing rows need recomputed after the step: new ones, and those over changed columns.

    `is_changed`: whether the step changes the values of a column that stays.
    """
    before = {column.name: column for column in step.before.computed_shown}
    origins = {origin.after.name: origin for origin in step.origins}
    old_masks, new_masks = dict(step.before.masks), dict(step.state.masks)

    def is_other_input(name: str) -> bool:
        old, new = step.before.schema.find(name), step.state.schema.find(name)
        if old is None or new is None:
            return old is not new
        origin = origins[new.name]
        return (
            origin.before is None
            or origin.before.name != old.name
            or old_masks.get(old.name) != new_masks.get(new.name)
            or step.before.column_type(old) != step.state.column_type(new)
            or (new.generated is not None and old.expression != new.expression)
            or is_changed(origin)
        )

    return [
        column
        for column in step.state.computed_shown
        if before.get(column.name) != column or any(map(is_other_input, column.expression.column_names))
    ]


def drops_computed(step: ChangeColumns) -> bool:
    """Whether the step removes a computed column, or changes its name or type, so that files have an unused column."""
    return not computed_fields(step.before) <= computed_fields(step.state)


def computed_fields(state: MirrorState) -> set[tuple[str, str]]:
    """Name and type of the computed columns that the mirror has."""
    return {(column.name, column.type) for column in state.computed_shown}


def unavailable_columns(state: MirrorState) -> dict[str, str]:
    """Computed columns that lack an input column, or that another column displaces, each with the reason."""
    shown = set(state.computed_shown)
    reasons = {}
    for column in state.computed:
        missing = column.expression.missing_columns(state.schema.column_names)
        if column not in shown:
            reasons[column.name] = "is missing: the mirror has another column with that name"
        elif missing:
            reasons[column.name] = f"is NULL: there is no column {', '.join(missing)}"
    return reasons
