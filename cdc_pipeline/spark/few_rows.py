"""Queries over few rows: what prepares a query for many costs more there than it gives.

Spark makes and compiles Java code for each query, and plans it anew after each of its stages. Over a thousand rows that is
most of what the query costs; interpreted, and planned once, it gives the same rows for two thirds of the CPU.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

FEW_ROWS = 10_000
"""Rows up to which a query is one over few. With twice as many the interpreter was still the faster one, warm or cold."""
_SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


def are_few(rows: int) -> bool:
    return rows <= FEW_ROWS


@contextlib.contextmanager
def for_rows(spark: SparkSession, rows: int) -> Iterator[None]:
    """Within it the session's queries are made for so many rows."""
    if not are_few(rows):
        yield
        return
    kept = {name: spark.conf.get(name) for name in _SETTINGS}
    interpret(spark)
    try:
        yield
    finally:
        for name, value in kept.items():
            spark.conf.set(name, str(value))


def interpret(spark: SparkSession) -> None:
    """Every further query of this session is one over few rows."""
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
