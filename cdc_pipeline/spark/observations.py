"""Metrics that Spark computes while a query runs (`Observation`)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Observation

_TIMEOUT_SECONDS = 5.0
"""The metrics of a finished query arrive later, through Spark's listener bus."""


def finished_metrics(observation: Observation) -> dict[str, Any] | None:
    """The metrics of a query that has returned; None if Spark did not run it, as Delta does if the table has its commit."""
    waiting: Any = observation
    end = time.monotonic() + _TIMEOUT_SECONDS
    while not waiting._jo.future().isCompleted():
        if time.monotonic() > end:
            return None
        time.sleep(0.005)
    metrics: dict[str, Any] = observation.get
    return metrics
