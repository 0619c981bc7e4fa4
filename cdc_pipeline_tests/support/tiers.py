"""The tiers of the suite, selected by markers:

- `make test-fast`: every test without the marker `jvm`, which tests with a fixture of `JVM_FIXTURES` get automatically.
- `make test`: the fast tier, and every test with the marker `core`.
- `make test-all`: every test, including those with the marker `long`.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest

TESTS = Path(__file__).parents[1]
# Fixtures that start a JVM: Spark's, a broker's, and Java's keytool.
JVM_FIXTURES = ("spark", "kafka", "certificates")
# JAVA_HOME of a test without the marker `jvm`: the error of Spark or the broker contains it, as an instruction.
NO_JAVA = "/mark-a-test-that-starts-a-jvm-with-jvm"


def mark_tiers(items: Iterable[pytest.Item]) -> None:
    """Adds `jvm` to tests whose fixtures start a JVM, and a group (`shards`) to each test that is `long` or `apart`."""
    for item in items:
        if any(name in getattr(item, "fixturenames", ()) for name in JVM_FIXTURES):
            item.add_marker(pytest.mark.jvm)
        alone = any(item.get_closest_marker(name) is not None for name in ("long", "apart"))
        if alone and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(re.sub(r"\W+", "-", item.name).strip("-")))


def hide_java() -> AbstractContextManager[object]:
    """Within the context, new processes find no Java."""
    return patch.dict(os.environ, {"JAVA_HOME": NO_JAVA})


@dataclass(frozen=True)
class CoreTest:
    """A test, or some of its parameters, with the marker `core`."""

    name: str
    """`folder/test_file.py::test_name`, or the file if the marker is in a constant of the module."""
    promises: frozenset[int]
    """Numbers of docs/reliability.md."""


def core_tests() -> Iterator[CoreTest]:
    """Reads every `pytest.mark.core(...)` from the text of the test modules."""
    for file in sorted(TESTS.rglob("test_*.py")):
        place = file.relative_to(TESTS).as_posix()
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            parts = list(ast.walk(node))
            if not any(map(_is_marker, parts)):
                continue
            calls = [part for part in parts if isinstance(part, ast.Call) and _is_marker(part.func)]
            promises = frozenset(int(ast.literal_eval(argument)) for call in calls for argument in call.args)
            # a marker in a constant of the module (`pytestmark`, lists of parameters) stands for the file
            yield CoreTest(f"{place}::{node.name}" if isinstance(node, ast.FunctionDef) else place, promises)


def _is_marker(node: ast.AST) -> bool:
    """Whether it is `pytest.mark.core`."""
    return isinstance(node, ast.Attribute) and ast.unparse(node) == "pytest.mark.core"
