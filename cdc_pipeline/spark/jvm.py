"""What Spark's JVM offers and PySpark does not, through py4j."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pyspark
from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn

_Arguments = ParamSpec("_Arguments")
_Built = TypeVar("_Built")
_METRICS_SECONDS = 5.0
"""The metrics of a finished query arrive later, through Spark's listener bus."""
_MOST_CAUSES = 20
_COMMON_PARTS = "spark.sql.subexpressionElimination.enabled"
_TREE_PATTERNS = {
    "CURRENT_LIKE": "depends on the current time, user or session",
    "PLAN_EXPRESSION": "contains a subquery",
    "PYTHON_UDF": "calls a user-defined function",
    "SCALA_UDF": "calls a user-defined function",
}
"""Members of Catalyst's `TreePattern`."""

_ESCAPED = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
_IN_NAMES = {" ": "\\ ", ":": "\\:", "=": "\\=", "#": "\\#", "!": "\\!"}


def spark_home() -> Path:
    """The folder of the Spark that PySpark starts."""
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def jvm(spark: SparkSession) -> Any:
    """py4j's view of the JVM, untyped: PySpark declares it optional because a stopped session has none."""
    return spark._jvm


def jvm_session(spark: SparkSession) -> Any:
    return spark._jsparkSession


class _LaterSession:
    """A session that starts when something uses it."""

    __class__ = property(lambda self: SparkSession)  # PySpark asks for it

    def __init__(self, start: Callable[[], SparkSession]) -> None:
        self._start, self._lock = start, threading.Lock()
        self._session: SparkSession | None = None

    def __getattr__(self, name: str) -> Any:
        with self._lock:
            if self._session is None:
                self._session = self._start()
        return getattr(self._session, name)


def started_later(start: Callable[[], SparkSession]) -> SparkSession:
    """The session of `start`, which is called when something uses the session: a run without new records needs no JVM."""
    session: Any = _LaterSession(start)
    return session  # type: ignore[no-any-return]


def has_started(spark: SparkSession) -> bool:
    """Whether the session is more than a promise of `started_later`."""
    return not isinstance(spark, _LaterSession) or spark._session is not None


def has_jvm() -> bool:
    """Whether this process has started a JVM, also if it has ended."""
    return SparkContext._gateway is not None


def exit_code() -> int | None:
    """The exit code of the JVM that this process has started (-9 after SIGKILL); None if it runs or there is none."""
    process = getattr(SparkContext._gateway, "proc", None)
    # its connections end shortly before it does
    with contextlib.suppress(subprocess.TimeoutExpired):
        return None if process is None else process.wait(timeout=1)
    return None


def java_causes(error: BaseException) -> list[Any]:
    """The Java exception of an error of py4j or PySpark, and its causes, innermost last. Empty for other errors."""
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    found: list[Any] = []
    while hasattr(java, "getCause") and len(found) < _MOST_CAUSES:
        found.append(java)
        java = java.getCause()
    return found


def finished_metrics(observation: Observation) -> dict[str, Any] | None:
    """The metrics of a query that has returned; None if Spark did not run it, as Delta does if the table has its commit."""
    waiting: Any = observation
    end = time.monotonic() + _METRICS_SECONDS
    while not waiting._jo.future().isCompleted():
        if time.monotonic() > end:
            return None
        time.sleep(0.005)
    metrics: dict[str, Any] = observation.get
    return metrics


def built_once(build: Callable[_Arguments, _Built]) -> Callable[_Arguments, _Built]:
    """Decorator: caches the results of `build` by its (hashable) arguments, for as long as the Spark context lives.

    For expressions that take hundreds of py4j calls to build.
    """
    cache: dict[object, tuple[SparkContext | None, _Built]] = {}

    @wraps(build)
    def built(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Built:
        context = SparkContext._active_spark_context
        key = (args, tuple(sorted(kwargs.items())))
        if key not in cache or cache[key][0] is not context:
            cache[key] = (context, build(*args, **kwargs))
        return cache[key][1]

    return built


def balanced(combine: Callable[[Column, Column], Column], columns: Iterable[Column], empty: Column) -> Column:
    """The columns combined by the associative operator `combine`, as a balanced tree; `empty` if there are none.

    A deep expression would overflow Java's stack.
    """
    terms = list(columns)
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=False)
        terms = [*(combine(*pair) for pair in pairs), *terms[len(terms) // 2 * 2 :]]
    return terms[0] if terms else empty


def null_on_error(spark: SparkSession, column: Column) -> Column:
    """The column, NULL in rows where evaluating it fails: overflow, division by zero, invalid cast.

    Spark SQL has this for single functions only (`try_add`). The session must be prepared by `allow_null_on_error`.
    """
    java = jvm(spark)
    expressions = java.org.apache.spark.sql.classic.ExpressionUtils
    tried = java.org.apache.spark.sql.catalyst.expressions.TryEval(expressions.expression(column._jc))
    return ClassicColumn(expressions.column(tried))


def allow_null_on_error(session: SparkSession) -> SparkSession:
    """Prepares the session for `null_on_error` and returns it.

    Disables the elimination of common subexpressions, which Spark would evaluate outside `TryEval`.
    """
    session.conf.set(_COMMON_PARTS, "false")
    return session


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
    for pattern, reason in _TREE_PATTERNS.items():
        if plan.containsPattern(catalyst.trees.TreePattern.withName(pattern)):
            return reason
    # this rule replaces casts such as to_date('today')
    if not catalyst.optimizer.SpecialDatetimeValues.apply(plan).equals(plan):
        return "depends on the current time"
    return None


def properties_text(settings: Mapping[str, str]) -> str:
    """The settings in the format of Java's `Properties`."""
    return "".join(f"{_escaped(name, _IN_NAMES)}={_escaped(value, {})}\n" for name, value in settings.items())


def _escaped(text: str, more: Mapping[str, str]) -> str:
    escapes = {**_ESCAPED, **more}
    escaped = "".join(escapes.get(character, character) for character in text)
    # Properties skips whitespace before a value
    return f"\\{escaped}" if escaped[:1] == " " else escaped


def java_map(java: Any, values: Mapping[str, str]) -> Any:
    """A Java map with these values, which arrive in one call instead of one per value. `java`: as of `jvm`."""
    found = java.java.util.Properties()
    found.load(java.java.io.StringReader(properties_text(values)))
    return found
