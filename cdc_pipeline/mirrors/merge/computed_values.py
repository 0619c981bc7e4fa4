"""The values of derived columns (`mirrors.model.computed_columns`), always of the mirror's own cells, masked as they are.

An expression that fails for a row is NULL there, and one that cannot be evaluated at all is NULL in all rows: neither stops
a cut.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta.tables import DeltaTable
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from cdc_pipeline.lake.delta import session_for
from cdc_pipeline.mirrors.model.steps import states_left
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.spark.null_on_error import fit, null_on_error

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from cdc_pipeline.lake.delta import Commit
    from cdc_pipeline.mirrors.model.computed_columns import DerivedColumn
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mirrors.model.steps import ChangeColumns, Step
    from cdc_pipeline.mysql.model.table import ColumnOrigin


_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class DerivedValues:
    """Those of a mirror, for frames of `session`, which `fitting_session` gave or which is `fit`."""

    session: SparkSession
    state: MirrorState

    def over(self, cells: Mapping[str, str]) -> dict[str, Column]:
        """Column → its value, where `cells` are the SQL of the values of upstream's columns."""
        unusable = self._unusable
        return {
            column.name: self._null(column) if column.name in unusable else self._value(column, cells)
            for column in self.state.derived_shown
        }

    def _value(self, column: DerivedColumn, cells: Mapping[str, str]) -> Column:
        sql = column.expression.over(cells)
        if sql is None:
            return self._null(column)
        return null_on_error(self.session, F.expr(f"try_cast(({sql}) AS {column.type})"))

    def _null(self, column: DerivedColumn) -> Column:
        return F.lit(None).cast(column.data_type)

    @functools.cached_property
    def _unusable(self) -> dict[str, str]:
        """The columns that Spark cannot evaluate over columns of these types, each with the first line of its reason."""
        shown = self.state.derived_shown
        if not shown:
            return {}
        cells = {column.name: f"c{place}" for place, column in enumerate(self.state.schema.columns)}
        fields = [
            StructField(cells[column.name], self.state.column_type(column)) for column in self.state.schema.columns
        ]
        # no local relation, of which the optimizer would find out that it is empty, and look no further
        empty = self.session.createDataFrame(self.session.sparkContext.emptyRDD(), StructType(fields))
        found = {}
        for column in shown:
            with _quiet():
                try:
                    tried = empty.select(self._value(column, cells))
                    # what is constant is evaluated here
                    tried._jdf.queryExecution().optimizedPlan()
                except (PySparkException, Py4JError) as error:
                    found[column.name] = str(error).split("\n")[0].split(" SQLSTATE")[0]
        return found

    def problems(self) -> dict[str, str]:
        """The columns that have no values, or are not there, each with the reason in words."""
        unusable = {name: f"is NULL: {reason}" for name, reason in self._unusable.items()}
        return {**unusable, **without_values(self.state)}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """PySpark writes errors of analysis to a log of its own as well, a page for each."""
    log = logging.getLogger("SQLQueryContextLogger")
    with _ONE_AT_A_TIME:  # mirrors are merged side by side
        before, log.disabled = log.disabled, True
        try:
            yield
        finally:
            log.disabled = before


def fitting_session(spark: SparkSession, *states: MirrorState) -> SparkSession:
    """The session, or one of the same application where one of the mirrors has derived columns."""
    return fit(spark.newSession()) if any(state.derived_shown for state in states) else spark


def with_derived(frame: DataFrame, state: MirrorState) -> DataFrame:
    """The frame, of upstream's columns under their names, with the mirror's derived columns. Its session is fitting."""
    cells = {column.name: quoted(column.name) for column in state.schema.columns}
    values = DerivedValues(frame.sparkSession, state).over(cells)
    return frame.select("*", *(value.alias(name) for name, value in values.items()))


def update_derived(
    spark: SparkSession, path: str, state: MirrorState, columns: Collection[DerivedColumn], commit: Commit
) -> None:
    """Computes these columns anew in all rows of the mirror, in one commit that is skipped where it is in."""
    names = {column.name for column in columns}
    cells = {column.name: quoted(column.name) for column in state.schema.columns}
    session = fit(session_for(spark, commit))
    values: dict[str, str | Column] = {
        quoted(name): value for name, value in DerivedValues(session, state).over(cells).items() if name in names
    }
    if values:
        DeltaTable.forPath(session, path).update(set=values)


def derived_problems(spark: SparkSession, steps: Iterable[Step]) -> list[str]:
    """Line by line what is wrong with derived columns of the mirrors that the steps leave."""
    session = spark
    found = []
    for state in sorted(states_left(steps), key=lambda state: state.name):
        session = fitting_session(session, state) if session is spark else session
        for name, reason in DerivedValues(session, state).problems().items() if state.derived else ():
            found.append(f"computed: {state.name}.{name} {reason}")
    return found


def computed_anew(step: ChangeColumns, is_changed: Callable[[ColumnOrigin], bool]) -> list[DerivedColumn]:
    """The columns whose values may be others after the step in rows that are there: new ones, and those of columns that
    came, went or changed. `is_changed` tells whether the step gives a kept column other values."""
    before = {column.name: column for column in step.before.derived_shown}
    origins = {origin.after.name: origin for origin in step.origins}
    old_masks, new_masks = dict(step.before.masks), dict(step.state.masks)

    def is_another(name: str) -> bool:
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
        for column in step.state.derived_shown
        if before.get(column.name) != column or any(map(is_another, column.expression.names))
    ]


def loses_derived(step: ChangeColumns) -> bool:
    """Whether files have a column which is there no more under its name and type."""
    return bool({_field(column) for column in step.before.derived_shown} - {*map(_field, step.state.derived_shown)})


def keeps_field(step: ChangeColumns, column: DerivedColumn) -> bool:
    """Whether files may have the column from before the step."""
    return _field(column) in {_field(other) for other in step.before.derived_shown}


def _field(column: DerivedColumn) -> tuple[str, str]:
    return column.name, column.type


def without_values(state: MirrorState) -> dict[str, str]:
    """Of the mirror's derived columns those that have no values, or are not there, each with the reason in words."""
    shown = set(state.derived_shown)
    found = {}
    for column in state.derived:
        missing = column.expression.missing(state.schema.column_names)
        if column not in shown:
            found[column.name] = "is not there: the mirror has a column of that name which is not computed"
        elif missing:
            found[column.name] = f"is NULL: there is no column {', '.join(missing)}"
    return found
