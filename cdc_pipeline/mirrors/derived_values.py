"""The values of derived columns (`mirrors.derived`), always of the mirror's own cells, masked as they are.

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

from cdc_pipeline.mirrors.derived import without_values
from cdc_pipeline.mirrors.steps import states_left
from cdc_pipeline.resources.delta import session_for
from cdc_pipeline.resources.null_on_error import fit, null_on_error
from cdc_pipeline.schemas.names import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from cdc_pipeline.mirrors.derived import DerivedColumn
    from cdc_pipeline.mirrors.state import MirrorState
    from cdc_pipeline.mirrors.steps import Step
    from cdc_pipeline.resources.delta import Commit


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
