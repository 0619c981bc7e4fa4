"""The tiers of the suite. Markers put a test into its tier:

- `make test-fast`: every test without the marker `jvm`. A test with a fixture of `JVM_FIXTURES` gets the marker by itself.
- `make test`: the fast tier, and every test with the marker `core`.
- `make test-all`: every test, those with the marker `long` included.
"""

from __future__ import annotations

import ast
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

TESTS = Path(__file__).parents[1]
# Fixtures that start a JVM: Spark's, a broker's, and Java's keytool.
JVM_FIXTURES = ("spark", "kafka", "certificates")
# JAVA_HOME of a test without the marker `jvm`. The error of Spark or the broker shows it, so it says what to do.
NO_JAVA = "/mark-a-test-that-starts-a-jvm-with-jvm"


def mark_tiers(items: Iterable[pytest.Item]) -> None:
    """Adds `jvm` where a fixture starts a JVM, and gives each test that is `long` or `apart` a group (`shards`)."""
    for item in items:
        if any(name in getattr(item, "fixturenames", ()) for name in JVM_FIXTURES):
            item.add_marker(pytest.mark.jvm)
        alone = any(item.get_closest_marker(name) is not None for name in ("long", "apart"))
        if alone and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(re.sub(r"\W+", "-", item.name).strip("-")))


def hide_java() -> AbstractContextManager[object]:
    """No process that starts within the context finds a Java."""
    return patch.dict(os.environ, {"JAVA_HOME": NO_JAVA})


@dataclass(frozen=True)
class CoreTest:
    """A test, or some of its parameters, with the marker `core`.

    `name` is `folder/test_file.py::test_name`, `promises` the numbers of docs/reliability.md.
    """

    name: str
    promises: frozenset[int]


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
