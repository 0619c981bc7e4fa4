"""Every module with logic has a test: one of its name, one that imports it, or the test that `stories.toml` names."""

from __future__ import annotations

import ast
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

import cdc_pipeline
from cdc_pipeline_tests.support.imports import imported, tree
from cdc_pipeline_tests.support.toml import read_toml

PACKAGE = Path(cdc_pipeline.__file__).parent
TESTS = Path(__file__).parent
STORIES: dict[str, str] = read_toml(TESTS / "stories.toml")


@cache
def _named(path: Path) -> frozenset[str]:
    """The modules that a module imports or starts with `python -m`."""
    texts = (node.value for node in ast.walk(tree(path)) if isinstance(node, ast.Constant))
    return imported(path) | {text for text in texts if isinstance(text, str)}


def _dotted(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_dotted(path): path for path in PACKAGE.rglob("*.py")}
HELPERS = {_dotted(path): path for path in TESTS.rglob("*.py")}
# Dagster loads this folder by its path
LOADED = {name for name in MODULES if name.startswith("cdc_pipeline.defs.")}


@cache
def _reached(test: Path) -> set[str]:
    """The modules of the package that a test imports, directly or indirectly."""
    known, found, remaining = MODULES | HELPERS, set[str](), [test]
    while remaining:
        path = remaining.pop()
        names = _named(path) & known.keys()
        for name in (names | LOADED if path == PACKAGE / "definitions.py" else names) - found:
            found.add(name)
            remaining.append(known[name])
    return found & MODULES.keys()


def _with_logic() -> dict[str, str]:
    """Path in the package → dotted name."""
    return {
        path.relative_to(PACKAGE).as_posix(): name
        for name, path in MODULES.items()
        if path.name != "__init__.py" and any(isinstance(node, ast.FunctionDef) for node in ast.walk(tree(path)))
    }


@cache
def _without_test_module() -> dict[str, str]:
    """The modules with logic that no test module imports or is named after."""
    tests = [path for path in HELPERS.values() if path.name.startswith("test_")]
    known = frozenset[str]().union(*map(_named, tests))
    named = {path.relative_to(TESTS).as_posix() for path in tests}
    found = {}
    for module, name in _with_logic().items():
        path = Path(module)
        if name not in known and path.with_name(f"test_{path.name}").as_posix() not in named:
            found[module] = name
    return found


def test_every_other_module_has_a_story() -> None:
    assert [module for module in _without_test_module() if not any(fnmatch(module, line) for line in STORIES)] == []


@pytest.mark.parametrize("line", STORIES)
def test_each_line_is_needed_and_its_test_reaches_the_module(line: str) -> None:
    matching = {name for module, name in _without_test_module().items() if fnmatch(module, line)}
    assert matching, "each of its modules has a test of its own or does not exist"
    assert matching - _reached(TESTS / STORIES[line]) == set()


def test_named_tests_exist() -> None:
    for story in set(STORIES.values()):
        assert any(
            isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
            for node in ast.walk(tree(TESTS / story))
        ), story
