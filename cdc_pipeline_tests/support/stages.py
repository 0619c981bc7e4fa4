"""The stages of the suite. A test is told its stage when it is collected:

- `fast` needs no Java;
- `spark` has a JVM: Spark in the test's own process, or a Kafka broker beside it;
- `processes` runs pipelines as processes of their own, each with a JVM, and kills some of them.

Most of it is told by a test's fixtures. A test that starts a JVM by itself says so with `@pytest.mark.jvm`. One that
does not say so fails: it finds no Java.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from contextlib import AbstractContextManager

FAST, SPARK, PROCESSES = "fast", "spark", "processes"
# Fixtures that start a JVM: Spark's, a broker's, and Java's keytool.
JVM_FIXTURES = ("spark", "kafka", "certificates")
# What a test of the fast stage has as JAVA_HOME. Spark and the broker show it when they do not find a Java there.
NO_JAVA = "/mark-a-test-that-starts-a-jvm-with-jvm"


def mark_stages(items: Iterable[pytest.Item]) -> None:
    """Marks `jvm` what starts one, in its own process or in others."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if any(name in fixtures for name in JVM_FIXTURES) or item.get_closest_marker(PROCESSES) is not None:
            item.add_marker(pytest.mark.jvm)


def stage_of(marks: Container[str]) -> str:
    """The stage of a test with these marks."""
    if PROCESSES in marks:
        return PROCESSES
    return SPARK if "jvm" in marks else FAST


def without_java() -> AbstractContextManager[object]:
    """Within it no process finds a Java."""
    return patch.dict(os.environ, {"JAVA_HOME": NO_JAVA})
