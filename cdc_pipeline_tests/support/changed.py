"""Runs the tests that the changes of the work tree can affect, found by the import graph (`make test-changed`).

    python -m cdc_pipeline_tests.support.changed [--since COMMIT] [-- PYTEST OPTIONS]

1. The tests near a change: those named after the module and those that import it. All but the long ones.
2. The tests that import it through other modules: only those of `make test`.

pytest-testmon selects tests by the lines that they run, but must record the whole suite first, and sees neither data files
nor other processes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import grimp

from cdc_pipeline_tests.support.tiers import TESTS

ROOT = TESTS.parent
_PACKAGES = ("cdc_pipeline", "cdc_pipeline_tests")
_NO_TEST_SELECTED = 5


@dataclass
class Affected:
    """Test files by their path below the repository."""

    near: set[str] = field(default_factory=set)
    far: set[str] = field(default_factory=set)


def changed_files(since: str) -> list[str]:
    """Paths below the repository of the files that differ from the commit or are untracked."""
    commands = (["diff", "--name-only", "--relative", since], ["ls-files", "--others", "--exclude-standard"])
    found = set[str]()
    for command in commands:
        done = subprocess.run(["git", *command], cwd=ROOT, check=True, capture_output=True, text=True)
        found |= set(done.stdout.splitlines())
    return sorted(found)


def affected_tests(changed: Iterable[str], graph: grimp.ImportGraph, tests: frozenset[str]) -> Affected:
    """The tests that the changed files affect. All are paths below the repository. Deleted files affect no test."""
    found = Affected()
    for path in map(PurePosixPath, changed):
        if path.suffix != ".py" or path.parts[0] not in _PACKAGES:
            found.near |= {test for test in tests if PurePosixPath(test).parent == _nearest(path, tests)}
        elif path.name == "conftest.py":
            found.far |= {test for test in tests if PurePosixPath(test).is_relative_to(path.parent)}
        else:
            found.near |= {str(path), str(_test_of(path))} & tests
            module = _module(path)
            if module in graph.modules:
                found.near |= _paths(graph.find_modules_that_directly_import(module)) & tests
                found.far |= _paths(graph.find_downstream_modules(module)) & tests
    found.far -= found.near
    return found


def _nearest(path: PurePosixPath, tests: frozenset[str]) -> PurePosixPath:
    """The nearest folder above a data file that has tests; the tests' root folder for files elsewhere, such as docs."""
    folders = {PurePosixPath(test).parent for test in tests}
    return next((folder for folder in path.parents if folder in folders), PurePosixPath(TESTS.name))


def _test_of(path: PurePosixPath) -> PurePosixPath:
    return PurePosixPath(TESTS.name, *path.parts[1:-1], f"test_{path.name}")


def _module(path: PurePosixPath) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _paths(modules: Iterable[str]) -> set[str]:
    return {f"{module.replace('.', '/')}.py" for module in modules}


def _pytest(files: set[str], markers: str, options: list[str]) -> int:
    if not files:
        return 0
    print(f"[test-changed] {len(files)} files, -m '{markers}'", flush=True)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "2",
        "--dist",
        "loadgroup",
        "--no-loadscope-reorder",
        "-m",
        markers,
    ]
    status = subprocess.run([*command, *options, *sorted(files)], cwd=ROOT, check=False).returncode
    return 0 if status == _NO_TEST_SELECTED else status


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make test-changed")
    parser.add_argument("--since", default="HEAD", help="a commit; by default what is not committed")
    parser.add_argument("options", nargs="*", help="options of pytest")
    chosen = parser.parse_args(arguments)
    graph = grimp.build_graph(*_PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    tests = frozenset(path.relative_to(ROOT).as_posix() for path in Path(TESTS).rglob("test_*.py"))
    affected = affected_tests(changed_files(chosen.since), graph, tests)
    if not affected.near | affected.far:
        print(f"[test-changed] nothing has changed since {chosen.since} that a test can see")
    near = _pytest(affected.near, "not long", chosen.options)
    return near or _pytest(affected.far, "core or not jvm and not long", chosen.options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
