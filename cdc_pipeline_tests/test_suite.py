"""Tests of the suite: its tiers, the distribution of its tests, and the promise of each test in `make test`."""

from __future__ import annotations

import os
import re
import subprocess
from collections import defaultdict
from statistics import mean
from types import SimpleNamespace
from typing import Any

import grimp
import pytest

from cdc_pipeline.spark.java import JavaError, require_java
from cdc_pipeline_tests.support import shards, tiers
from cdc_pipeline_tests.support.changed import affected_tests

ROOT = tiers.TESTS.parent
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


class _Item:
    """The part of a collected test that `mark_tiers` uses."""

    def __init__(self, fixtures: tuple[str, ...] = (), *marks: str, name: str = "test_x") -> None:
        self.fixturenames, self.marks, self.name, self.args = fixtures, list(marks), name, ()

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None

    def add_marker(self, mark: Any) -> None:
        self.marks.append(mark.name)
        self.args = mark.args


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (_Item(), {"fast", "all"}),
        (_Item(("tmp_path", "paths")), {"fast", "all"}),
        (_Item((), "long"), {"all"}),
        (_Item(("tmp_path", "spark")), {"all"}),
        (_Item(("kafka",)), {"all"}),
        (_Item((), "jvm"), {"all"}),
        (_Item(("spark",), "core"), {"core", "all"}),
        (_Item((), "jvm", "core"), {"core", "all"}),
    ],
)
def test_markers_decide_the_tier(item: Any, expected: set[str]) -> None:
    tiers.mark_tiers([item])
    calls = re.findall(r"^test-(fast|core|all):.*\n(?:ifneq.*\n)?\t\$\(call pytest,([^,)]*)", MAKEFILE, re.MULTILINE)
    names = {name: name in item.marks for name in ("jvm", "core", "long")}
    assert {tier for tier, expression in calls if not expression or eval(expression, {}, names)} == expected


def test_make_test_and_ci_run_the_fast_and_the_core_tier() -> None:
    (parts,) = re.findall(r"^test: ([a-z -]*?) ##", MAKEFILE, re.MULTILINE)
    assert parts.split() == ["test-fast", "test-core"]
    steps = re.findall(r'^step "(.*?)" make (.*)$', (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    assert [target for _, target in steps] == ["venv", "lint", "test", "jar JAR_FLAGS=--check", "wheel"]


def test_a_test_without_the_marker_jvm_finds_no_java() -> None:
    with pytest.raises(JavaError, match=tiers.NO_JAVA):
        require_java()
    shown = subprocess.run(["sh", "-c", "echo $JAVA_HOME"], capture_output=True, text=True).stdout.strip()
    assert shown == tiers.NO_JAVA


@pytest.mark.jvm
def test_a_test_with_the_marker_jvm_finds_java() -> None:
    assert os.environ.get("JAVA_HOME") != tiers.NO_JAVA
    require_java()


@pytest.mark.parametrize("marker", ["long", "apart"])
def test_some_tests_have_their_own_scope(marker: str) -> None:
    item: Any = _Item((), marker, name="test_many[a/b@c]")
    tiers.mark_tiers([item])
    assert item.args == ("test_many-a-b-c",)
    file = "cdc_pipeline_tests/faults/test_x.py"
    assert shards.scope(f"{file}::test_a[x@y]") == "faults/test_x.py"
    assert shards.scope(f"{file}::test_many[a@b]@test_many-a-b") == "faults/test_x.py@test_many-a-b"


def test_shards_have_each_scope_once_and_equal_loads() -> None:
    seconds = {f"file_{number}.py": number for number in range(40)}
    scopes = [*seconds, "unknown.py"]
    picked = [shards.Shard(number, 6).pick(scopes, seconds) for number in range(1, 7)]
    assert sorted(scope for shard in picked for scope in shard) == sorted(scopes)
    loads = [sum(seconds.get(scope, mean(seconds.values())) for scope in shard) for shard in picked]
    assert max(loads) - min(loads) < 5


def test_scopes_without_a_duration_are_distributed_too() -> None:
    scopes = [f"file_{number}.py" for number in range(12)]
    for seconds in ({}, dict.fromkeys(scopes, 0)):
        assert [len(shards.Shard(number, 3).pick(scopes, seconds)) for number in (1, 2, 3)] == [4, 4, 4]


@pytest.mark.parametrize("text", ["", "2", "0/6", "7/6", "-1/6", "a/b", "2/6/1"])
def test_an_invalid_shard_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"SHARD is {text!r}; expected NUMBER/COUNT")):
        shards.Shard.read(text)


def test_unknown_scopes_come_first_then_the_longest() -> None:
    assert shards.longest_first(["a.py", "b.py", "c.py", "c.py"], {"a.py": 1, "b.py": 30}) == ["c.py", "b.py", "a.py"]


def test_recorded_seconds_replace_those_of_the_same_scopes() -> None:
    recorder = shards.Recorder()
    for node, properties, seconds in (
        ("cdc_pipeline_tests/a.py::test_x", [], 0.4),
        ("cdc_pipeline_tests/a.py::test_y", [(shards.SCOPE, "a.py")], 1.2),
        ("cdc_pipeline_tests/k.py::test_long[a]", [(shards.SCOPE, "k.py@long-a")], 70),
    ):
        report: Any = SimpleNamespace(nodeid=node, user_properties=properties, duration=seconds)
        recorder.add(report)
    before = {"core": {"a.py": 7}, "all": {"gone.py": 9, "gone.py@long": 9, "a.py": 5, "b.py": 3}}
    found = recorder.merge(before, "all", ["a.py", "b.py", "k.py"])
    assert found == {"all": {"k.py@long-a": 70, "b.py": 3, "a.py": 2}, "core": {"a.py": 7}}
    assert list(found["all"]) == ["k.py@long-a", "b.py", "a.py"]
    assert before["all"]["a.py"] == 5


def test_recorded_files_exist() -> None:
    scopes = [scope for tier in shards.recorded().values() for scope in tier]
    assert [scope for scope in scopes if not (tiers.TESTS / scope.split("@")[0]).exists()] == []


def _promises() -> dict[str, list[str]]:
    """docs/reliability.md: number of a promise, or `-` → the tests of the column `make test`."""
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    table = text.split("| promise | in `make test` |", 1)[1].split("\n\n", 1)[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")
    ]
    return {re.match(r"\d+|-", row[0])[0]: re.findall(r"`([^`]+\.py[^`]*)`", row[1]) for row in rows[1:]}  # type: ignore[index]


def test_docs_list_the_tests_of_each_promise() -> None:
    """A test of the core tier is listed in the row of each promise that its marker names, and in no other row."""
    marked = defaultdict(set)
    for test in tiers.core_tests():
        for promise in test.promises or {"-"}:
            marked[str(promise)].add(test.name)
    listed = {}
    for promise, tests in _promises().items():
        found = {test for test in tests if "::" in test or test in marked[promise]}
        if found:
            listed[promise] = found
    assert listed == {promise: tests for promise, tests in marked.items() if tests}


def test_docs_name_tests_that_exist() -> None:
    files = {test.split("::")[0] for tests in _promises().values() for test in tests}
    assert [file for file in files if not (tiers.TESTS / file).exists()] == []


def test_each_promise_has_a_test_in_make_test() -> None:
    listed = _promises()
    assert set(map(str, range(1, 15))) <= set(listed)
    # of 13 one part is not built, the other is in `make test-all`
    assert [promise for promise, tests in listed.items() if not tests] == ["13"]


def _graph(**imports: tuple[str, ...]) -> grimp.ImportGraph:
    graph = grimp.ImportGraph()
    for importer, imported in imports.items():
        for module in imported:
            graph.add_import(importer=importer.replace("__", "."), imported=module)
    return graph


def test_changes_affect_their_importers() -> None:
    graph = _graph(
        cdc_pipeline__lake__b=("cdc_pipeline.lake.a",),
        cdc_pipeline_tests__lake__test_near=("cdc_pipeline.lake.a",),
        cdc_pipeline_tests__mirrors__test_far=("cdc_pipeline.lake.b",),
        cdc_pipeline_tests__mirrors__test_other=("cdc_pipeline.lake.c",),
    )
    names = ("lake/test_a", "lake/test_near", "mirrors/test_far", "mirrors/test_other", "test_docs")
    tests = frozenset(f"cdc_pipeline_tests/{name}.py" for name in names)

    def affected(*changed: str) -> tuple[set[str], set[str]]:
        found = affected_tests(changed, graph, tests)
        short = [{name.removeprefix("cdc_pipeline_tests/") for name in files} for files in (found.near, found.far)]
        return short[0], short[1]

    assert affected("cdc_pipeline/lake/a.py") == ({"lake/test_a.py", "lake/test_near.py"}, {"mirrors/test_far.py"})
    assert affected("cdc_pipeline_tests/mirrors/test_other.py") == ({"mirrors/test_other.py"}, set())
    assert affected("cdc_pipeline_tests/lake/cases/x.json") == ({"lake/test_a.py", "lake/test_near.py"}, set())
    assert affected("docs/audit.md", "cdc_pipeline/gone.py") == ({"test_docs.py"}, set())
    assert affected("cdc_pipeline_tests/mirrors/conftest.py") == (
        set(),
        {"mirrors/test_far.py", "mirrors/test_other.py"},
    )


@pytest.mark.xdist_group("alone")
def test_pytest_xdist_appends_the_group_to_the_node_id(request: pytest.FixtureRequest) -> None:
    """Without it, groups are lost in silence: neither shards nor processes separate the tests of a file."""
    if hasattr(request.config, "workerinput"):
        assert shards.scope(request.node.nodeid) == "test_suite.py@alone"
