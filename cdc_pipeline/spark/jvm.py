"""Access to a session's JVM through py4j, for functions that PySpark does not expose."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def jvm(spark: SparkSession) -> Any:
    """py4j's view of the JVM, untyped: PySpark declares it optional because a stopped session has none."""
    return spark._jvm


def jvm_session(spark: SparkSession) -> Any:
    return spark._jsparkSession


def exit_code() -> int | None:
    """The exit code of the JVM that this process has started (-9 after SIGKILL); None if it runs or there is none."""
    process = getattr(SparkContext._gateway, "proc", None)
    # its connections end shortly before it does
    with contextlib.suppress(subprocess.TimeoutExpired):
        return None if process is None else process.wait(timeout=1)
    return None
