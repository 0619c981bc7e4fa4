"""Expressions that return NULL instead of failing, for any error in them: overflow, division by zero, invalid cast.

Spark SQL has this for single functions only (`try_add`). Uses Catalyst's `TryEval`, on which those are built, through py4j.
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
    """The column, NULL in rows where evaluating it fails. The session must be prepared by `allow_null_on_error`."""
    java = jvm(spark)
    expressions = java.org.apache.spark.sql.classic.ExpressionUtils
    tried = java.org.apache.spark.sql.catalyst.expressions.TryEval(expressions.expression(column._jc))
    return Column(expressions.column(tried))


def allow_null_on_error(session: SparkSession) -> SparkSession:
    """Prepares the session for `null_on_error` and returns it.

    Disables the elimination of common subexpressions, which Spark would evaluate outside `TryEval`.
    """
    session.conf.set(_COMMON_PARTS, "false")
    return session
