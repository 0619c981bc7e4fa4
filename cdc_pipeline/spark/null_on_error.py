"""An expression that is NULL where it fails, whatever in it does: an overflow, a division by zero, a text that is no number.

Spark has this for some functions (`try_add`) and not for a whole expression in SQL; its own `TryEval`, on which those
are built, is asked for through py4j.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.classic.column import Column

from cdc_pipeline.spark.jvm import jvm

if TYPE_CHECKING:
    from pyspark.sql import Column as AnyColumn
    from pyspark.sql import SparkSession

_COMMON_PARTS = "spark.sql.subexpressionElimination.enabled"


def null_on_error(spark: SparkSession, column: AnyColumn) -> AnyColumn:
    """The column, NULL in rows for which it cannot be evaluated. Only for frames of a session that is `fit`."""
    java = jvm(spark)
    expressions = java.org.apache.spark.sql.classic.ExpressionUtils
    tried = java.org.apache.spark.sql.catalyst.expressions.TryEval(expressions.expression(column._jc))
    return Column(expressions.column(tried))


def fit(session: SparkSession) -> SparkSession:
    """The session, made fit for `null_on_error`: Spark takes what two expressions have in common out of both and evaluates
    it before, where nothing catches that it fails."""
    session.conf.set(_COMMON_PARTS, "false")
    return session
