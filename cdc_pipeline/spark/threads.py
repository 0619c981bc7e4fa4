"""Runs work of one Spark session in several threads, or beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

_ItemT = TypeVar("_ItemT")
_ResultT = TypeVar("_ResultT")


def map_in_threads(
    spark: SparkSession, work: Callable[[_ItemT], _ResultT], items: Iterable[_ItemT], threads: int
) -> list[_ResultT]:
    """Calls `work` for each item in up to `threads` threads and returns the results in the order of the items.

    Raises the first item's error after all calls have ended. Each call has its own copy of Spark's local properties: with
    shared ones, of two queries that start at once one would lose its execution id.
    """
    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="side_by_side") as pool:
        futures = [pool.submit(inheritable_thread_target(spark)(work), item) for item in items]
        return [future.result() for future in futures]


@contextmanager
def repeating(action: Callable[[], object], every_seconds: float) -> Iterator[None]:
    """Within the context, a thread calls `action` each `every_seconds`, for the first time after that time."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(every_seconds):
            action()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
