"""Expressions that are built once for a Spark context: each is hundreds of calls into the JVM, and the same every time."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from pyspark import SparkContext

if TYPE_CHECKING:
    from collections.abc import Callable

_Arguments = ParamSpec("_Arguments")
_Built = TypeVar("_Built")


def built_once(build: Callable[_Arguments, _Built]) -> Callable[_Arguments, _Built]:
    """`build`, called once for its (hashable) arguments while a Spark context lives."""
    kept: dict[object, tuple[SparkContext | None, _Built]] = {}

    @wraps(build)
    def built(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Built:
        context = SparkContext._active_spark_context
        key = (args, tuple(sorted(kwargs.items())))
        if key not in kept or kept[key][0] is not context:
            kept[key] = (context, build(*args, **kwargs))
        return kept[key][1]

    return built
