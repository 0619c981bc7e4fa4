"""Whether Spark computes the same value from the same row in each run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.spark.jvm import jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PATTERNS = {
    "CURRENT_LIKE": "depends on the current time, user or session",
    "PLAN_EXPRESSION": "contains a subquery",
    "PYTHON_UDF": "calls a user-defined function",
    "SCALA_UDF": "calls a user-defined function",
}
"""Members of Catalyst's `TreePattern`."""


def nondeterminism(projection: DataFrame) -> str | None:
    """Why the columns of `select` over a frame without a query are not functions of their row; None if they are.

    Analyzes the query and starts no Spark job. Raises Py4JError if a constant in it cannot be evaluated.
    """
    java = jvm(projection.sparkSession)
    catalyst = java.org.apache.spark.sql.catalyst
    # a function may be defined by others
    plan = catalyst.optimizer.ReplaceExpressions.apply(projection._jdf.queryExecution().analyzed())
    if plan.nodeName() != "Project" or not plan.child().children().isEmpty():
        return "is an aggregate, a window function or a generator"
    if not plan.deterministic():
        return "is not deterministic"
    for pattern, reason in _PATTERNS.items():
        if plan.containsPattern(catalyst.trees.TreePattern.withName(pattern)):
            return reason
    # this rule replaces casts such as to_date('today')
    if not catalyst.optimizer.SpecialDatetimeValues.apply(plan).equals(plan):
        return "depends on the current time"
    return None
