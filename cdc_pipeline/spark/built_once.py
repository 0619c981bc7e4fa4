"""A cache for Spark expressions that take hundreds of py4j calls to build."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from pyspark import SparkContext

if TYPE_CHECKING:
    from collections.abc import Callable

_Arguments = ParamSpec("_Arguments")
_Built = TypeVar("_Built")


def built_once(build: Callable[_Arguments, _Built]) -> Callable[_Arguments, _Built]:
    """Decorator: caches the results of `build` by its (hashable) arguments, for as long as the Spark context lives."""
    cache: dict[object, tuple[SparkContext | None, _Built]] = {}

    @wraps(build)
    def built(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Built:
        context = SparkContext._active_spark_context
        key = (args, tuple(sorted(kwargs.items())))
        if key not in cache or cache[key][0] is not context:
            cache[key] = (context, build(*args, **kwargs))
        return cache[key][1]

    return built
